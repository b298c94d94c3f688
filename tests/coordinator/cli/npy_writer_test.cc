#include "coordinator/cli/npy_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/io/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::HasSubstr;

// numpy.save of an array of shape (2, 3) and type float32, as numpy 1.24 writes it.
TEST(NpyWriterTest, HeaderEqualsNumpys) {
  std::string expected("\x93NUMPY\x01\x00\x76\x00", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  expected.resize(127, ' ');
  EXPECT_EQ(NpyHeader(NpyType::kFloat32, 2, 3), expected + "\n");
  EXPECT_THAT(NpyHeader(NpyType::kInt32, 2, 3), HasSubstr("'<i4'"));
}

TEST(NpyWriterTest, HeaderIsAMultipleOf64BytesForEveryShape) {
  for (int64_t rows = 1; rows < 1'000'000'000'000; rows *= 10) {
    EXPECT_EQ(NpyHeader(NpyType::kFloat32, rows, rows).size() % 64, 0U) << rows;
  }
}

TEST(NpyWriterTest, AppendedRowsFollowTheHeaderInOrder) {
  const TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter writer,
                             NpyWriter::Create(dir / "x.npy", NpyType::kInt32, 2, 2));
  SHOAL_ASSERT_OK(writer.Append(std::vector<int32_t>{0x41414141, 0x42424242, 0x43434343}));
  SHOAL_ASSERT_OK(writer.Append(std::vector<int32_t>{0x44444444}));
  SHOAL_ASSERT_OK(writer.Finish());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string bytes, ReadTextFile(dir / "x.npy", 1000));
  EXPECT_EQ(bytes, NpyHeader(NpyType::kInt32, 2, 2) + "AAAABBBBCCCCDDDD");
}

TEST(NpyWriterTest, FileAppearsOnlyWhenItIsComplete) {
  const TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter writer,
                             NpyWriter::Create(dir / "x.npy", NpyType::kFloat32, 2, 1));
  SHOAL_ASSERT_OK(writer.Append(std::vector<float>{1}));
  EXPECT_THAT(writer.Finish(),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("1 values are missing")));
  EXPECT_FALSE(std::filesystem::exists(dir / "x.npy"));
  SHOAL_ASSERT_OK(writer.Append(std::vector<float>{2}));
  SHOAL_ASSERT_OK(writer.Finish());
  EXPECT_TRUE(std::filesystem::exists(dir / "x.npy"));
}

TEST(NpyWriterTest, NothingIsLeftOfAnArrayThatWasNotFinished) {
  const TempDir dir;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter first,
                               NpyWriter::Create(dir / "x.npy", NpyType::kFloat32, 2, 1));
    SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter second,
                               NpyWriter::Create(dir / "y.npy", NpyType::kFloat32, 1, 1));
    SHOAL_ASSERT_OK(first.Append(std::vector<float>{1}));
    first = std::move(second);
    NpyWriter third = std::move(first);
    SHOAL_ASSERT_OK(third.Append(std::vector<float>{1}));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NpyWriterTest, FinishedFileOutlivesItsWriter) {
  const TempDir dir;
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const NpyWriter other,
                               NpyWriter::Create(dir / "y.npy", NpyType::kFloat32, 1, 1));
    SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter writer,
                               NpyWriter::Create(dir / "x.npy", NpyType::kFloat32, 0, 5));
    SHOAL_ASSERT_OK(writer.Finish());
  }
  EXPECT_TRUE(std::filesystem::exists(dir / "x.npy"));
  EXPECT_FALSE(std::filesystem::exists(dir / "y.npy.partial"));
}

TEST(NpyWriterTest, RefusesAShapeThatCannotBe) {
  const TempDir dir;
  EXPECT_THAT(NpyWriter::Create(dir / "x.npy", NpyType::kFloat32, -1, 5).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-1 x 5")));
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(NpyWriterTest, RefusesMoreValuesThanTheShapeHas) {
  const TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(NpyWriter writer,
                             NpyWriter::Create(dir / "x.npy", NpyType::kFloat32, 1, 1));
  EXPECT_THAT(writer.Append(std::vector<float>{1, 2}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("more values")));
}

TEST(NpyWriterTest, NamesAPathThatCannotBeWritten) {
  EXPECT_THAT(NpyWriter::Create("/nonexistent/x.npy", NpyType::kFloat32, 1, 1).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/x.npy")));
}

}  // namespace
}  // namespace shoal

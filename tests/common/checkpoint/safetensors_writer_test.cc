#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(SafetensorsWriterTest, WritesTheBytesOfThePublishedFormat) {
  TempDir dir;
  const std::string path = dir / "x.safetensors";
  SHOAL_ASSERT_OK_AND_ASSIGN(
      auto writer,
      SafetensorsWriter::Create(path, {{"b", DType::kF32, {2, 1}}, {"a", DType::kF32, {}}}));
  SHOAL_ASSERT_OK(writer->AppendFloat(std::vector<float>{1.0F, -2.0F}));
  SHOAL_ASSERT_OK(writer->AppendFloat(std::vector<float>{0.5F}));
  SHOAL_ASSERT_OK(writer->Finish());

  const std::string file = FileText(path);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"data_offsets":[8,12],"dtype":"F32","shape":[]},)"
      R"("b":{"data_offsets":[0,8],"dtype":"F32","shape":[2,1]}})";
  ASSERT_GE(file.size(), 8U);
  const size_t length = static_cast<unsigned char>(file[0]);  // below 256, so the first byte alone
  EXPECT_EQ(file.substr(1, 7), std::string(7, '\0'));
  EXPECT_EQ(length % 8, 0U);
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ(file.substr(8 + header.size(), length - header.size()),
            std::string(length - header.size(), ' '));
  // 1, -2 and 0.5 are 0x3f800000, 0xc0000000 and 0x3f000000, little-endian.
  EXPECT_EQ(file.substr(8 + length),
            std::string("\x00\x00\x80\x3f\x00\x00\x00\xc0\x00\x00\x00\x3f", 12));
}

TEST(SafetensorsWriterTest, TheReaderGetsBackWhatWasWritten) {
  TempDir dir;
  std::ofstream(dir / "config.json") << "{}";
  // More than one piece of a read, so that the pieces meet.
  std::vector<float> large((size_t{1} << 19) + 3);
  for (size_t i = 0; i < large.size(); ++i) {
    large[i] = static_cast<float>(i) * 0.25F;
  }
  const std::vector<uint64_t> large_shape = {1, large.size()};
  SHOAL_ASSERT_OK_AND_ASSIGN(
      auto writer,
      SafetensorsWriter::Create(dir / "model.safetensors", {{"large", DType::kF32, large_shape},
                                                            {"empty", DType::kF32, {0}},
                                                            {"quote\"d", DType::kF32, {3}}}));
  SHOAL_ASSERT_OK(writer->AppendFloat(large));
  SHOAL_ASSERT_OK(writer->AppendFloat({}));
  SHOAL_ASSERT_OK(writer->AppendFloat(std::vector<float>{1, 2, 3}));
  SHOAL_ASSERT_OK(writer->Finish());

  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  EXPECT_EQ(checkpoint->tensors().size(), 3U);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo info, checkpoint->Find("large", large_shape));
  std::vector<float> back(large.size());
  SHOAL_ASSERT_OK(checkpoint->ReadFloat("large", info, back));
  EXPECT_EQ(back, large);
  SHOAL_ASSERT_OK_AND_ASSIGN(const TensorInfo quoted,
                             checkpoint->Find("quote\"d", std::vector<uint64_t>{3}));
  std::vector<float> three(3);
  SHOAL_ASSERT_OK(checkpoint->ReadFloat("quote\"d", quoted, three));
  EXPECT_THAT(three, ElementsAre(1, 2, 3));
}

TEST(SafetensorsWriterTest, ThePathAppearsAtFinishAndNotBefore) {
  TempDir dir;
  const std::string path = dir / "x.safetensors";
  SHOAL_ASSERT_OK_AND_ASSIGN(auto writer,
                             SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}}));
  SHOAL_ASSERT_OK(writer->AppendFloat(std::vector<float>{1}));
  EXPECT_FALSE(std::filesystem::exists(path));
  SHOAL_ASSERT_OK(writer->Finish());
  EXPECT_TRUE(std::filesystem::exists(path));
  writer.reset();
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(SafetensorsWriterTest, AnUnfinishedWriterLeavesTheOldFileAndNothingElse) {
  TempDir dir;
  const std::string path = dir / "x.safetensors";
  std::ofstream(path) << "old";
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(auto writer,
                               SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}}));
    EXPECT_TRUE(std::filesystem::exists(path + ".tmp"));
  }
  EXPECT_EQ(FileText(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(SafetensorsWriterTest, RefusesDataThatWasNotAnnounced) {
  TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      auto writer, SafetensorsWriter::Create(
                       dir / "x", {{"a", DType::kF32, {2, 3}}, {"half", DType::kF16, {1}}}));
  EXPECT_THAT(writer->AppendFloat(std::vector<float>(5)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("tensor a"), HasSubstr("6 elements"), HasSubstr("5 of"))));
  SHOAL_EXPECT_OK(writer->AppendFloat(std::vector<float>(6)));
  EXPECT_THAT(writer->AppendFloat(std::vector<float>(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("tensor half"), HasSubstr("F16"))));
}

TEST(SafetensorsWriterTest, RefusesMoreOrFewerTensorsThanAnnounced) {
  TempDir dir;
  SHOAL_ASSERT_OK_AND_ASSIGN(auto writer,
                             SafetensorsWriter::Create(dir / "x", {{"a", DType::kF32, {1}}}));
  EXPECT_THAT(writer->Finish(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tensor a")));
  SHOAL_EXPECT_OK(writer->AppendFloat(std::vector<float>(1)));
  EXPECT_THAT(writer->AppendFloat(std::vector<float>(1)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("more tensors")));
  SHOAL_EXPECT_OK(writer->Finish());
  EXPECT_THAT(writer->Finish(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("finished already")));
}

TEST(SafetensorsWriterTest, RefusesNamesThatCannotAllBeKeys) {
  TempDir dir;
  for (const std::vector<TensorSpec>& specs :
       {std::vector<TensorSpec>{{"twice", DType::kF32, {1}}, {"twice", DType::kF32, {1}}},
        std::vector<TensorSpec>{{"__metadata__", DType::kF32, {1}}}}) {
    EXPECT_THAT(SafetensorsWriter::Create(dir / "x", specs),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(specs.back().name)));
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(SafetensorsWriterTest, RefusesShapesWhoseSizesOverflow) {
  TempDir dir;
  const uint64_t half = uint64_t{1} << 32;
  EXPECT_THAT(SafetensorsWriter::Create(dir / "x", {{"wraps", DType::kF32, {half, half}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("wraps")));
  const uint64_t most = uint64_t{1} << 56;
  EXPECT_THAT(SafetensorsWriter::Create(
                  dir / "x", {{"most", DType::kF32, {most}}, {"more", DType::kF32, {1}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor more")));
}

TEST(SafetensorsWriterTest, NamesADirectoryThatDoesNotExist) {
  TempDir dir;
  EXPECT_THAT(SafetensorsWriter::Create(dir / "missing/x", {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing/x")));
}

TEST(SafetensorsWriterTest, AFullDiskIsNamedAsSuch) {
  TempDir dir;
  // Writes to /dev/full always fail with ENOSPC.
  ASSERT_EQ(::symlink("/dev/full", (dir / "x.tmp").c_str()), 0);
  EXPECT_THAT(SafetensorsWriter::Create(dir / "x", {{"a", DType::kF32, {1}}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("x.tmp")));
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

}  // namespace
}  // namespace shoal

#include "common/io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FileTest, OpenForReadNamesAMissingFile) {
  EXPECT_THAT(OpenForRead("/nonexistent/x").status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/x")));
}

TEST(FileTest, OpenForReadRefusesDirectoriesAndPipesWithoutBlocking) {
  TempDir dir;
  EXPECT_THAT(OpenForRead(dir.path()).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
  ASSERT_EQ(::mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(OpenForRead(dir / "pipe").status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

TEST(FileTest, ReadExactAtSaysWhereTheFileEnds) {
  TempDir dir;
  std::ofstream(dir / "x") << "0123456789";
  SHOAL_ASSERT_OK_AND_ASSIGN(const UniqueFd fd, OpenForRead(dir / "x"));
  std::array<std::byte, 4> four{};
  SHOAL_EXPECT_OK(ReadExactAt(fd, "x", 6, four));
  EXPECT_EQ(four[3], std::byte{'9'});
  EXPECT_THAT(ReadExactAt(fd, "x", 8, four),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("ends at byte 10"), HasSubstr("2 bytes too early"))));
}

TEST(FileTest, ReadTextFileRefusesFilesAboveTheLimit) {
  TempDir dir;
  std::ofstream(dir / "x") << "0123456789";
  EXPECT_EQ(*ReadTextFile(dir / "x", 10), "0123456789");
  EXPECT_THAT(ReadTextFile(dir / "x", 9),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("10 bytes")));
}

TEST(FileTest, WriteFileAtomicallyLeavesNoTemporaryAfterAnError) {
  TempDir dir;
  std::filesystem::create_directories(dir / "x/not-empty");
  EXPECT_FALSE(WriteFileAtomically(dir / "x", "new").ok());
  EXPECT_FALSE(std::filesystem::exists(dir / "x.tmp"));
}

TEST(FileTest, WriteFileAtomicallyReplacesTheContentAndLeavesNoTemporary) {
  TempDir dir;
  SHOAL_ASSERT_OK(WriteFileAtomically(dir / "x", "old"));
  SHOAL_ASSERT_OK(WriteFileAtomically(dir / "x", "new content"));
  EXPECT_EQ(*ReadTextFile(dir / "x", 100), "new content");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

TEST(FileTest, WriteFileAtomicallyNamesADirectoryThatIsMissing) {
  EXPECT_THAT(WriteFileAtomically("/nonexistent/dir/x", "text"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/dir/x")));
}

TEST(FileTest, WritesToAFullDeviceAreResourceExhausted) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.valid());
  const std::array<std::byte, 1> byte{};
  EXPECT_THAT(WriteAll(full, "/dev/full", byte),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("/dev/full")));
}

TEST(FileTest, FreeDiskBytesNamesAMissingPath) {
  EXPECT_GT(*FreeDiskBytes("/"), 0U);
  EXPECT_THAT(FreeDiskBytes("/nonexistent"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent")));
}

TEST(UniqueFdTest, OwnsTheDescriptorUntilItIsMovedOrClosed) {
  UniqueFd first(::dup(0));
  const int number = first.get();
  UniqueFd second(std::move(first));
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_EQ(second.get(), number);
  SHOAL_EXPECT_OK(second.Close());
  EXPECT_FALSE(second.valid());
  EXPECT_EQ(::fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace shoal

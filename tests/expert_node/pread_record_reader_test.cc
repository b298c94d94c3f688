#include "expert_node/pread_record_reader.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "common/container/unit_layout.h"
#include "common/io/aligned_buffer.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPages = 6;
constexpr uint64_t kBankBytes = kPages * kRecordAlignment;

class PreadRecordReaderTest : public ::testing::Test {
 protected:
  PreadRecordReaderTest() : path_(dir_ / "layer.bank") {
    std::ofstream file(path_, std::ios::binary);
    for (uint64_t i = 0; i < kBankBytes; ++i) {
      file.put(static_cast<char>(i / kRecordAlignment + 1));
    }
    buffer_ = *AlignedBuffer::Allocate(2 * kRecordAlignment);
  }

  absl::StatusOr<std::unique_ptr<PreadRecordReader>> Open(PreadCalls calls = PreadCalls::System(),
                                                          uint64_t size_bytes = kBankBytes) {
    return PreadRecordReader::Open({{7, path_, size_bytes}}, std::move(calls));
  }

  // Two pages from the second one on.
  absl::Status ReadTwo(PreadRecordReader& reader) {
    return reader.Read(7, kRecordAlignment, buffer_.bytes(), counts_);
  }
  void ExpectTwo() {
    EXPECT_EQ(buffer_.bytes().front(), std::byte{2});
    EXPECT_EQ(buffer_.bytes().back(), std::byte{3});
  }

  TempDir dir_;
  std::string path_;
  AlignedBuffer buffer_;
  ReadCounts counts_;
};

TEST_F(PreadRecordReaderTest, ReadsWithOneCall) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open());
  SHOAL_ASSERT_OK(ReadTwo(*reader));
  ExpectTwo();
  EXPECT_EQ(counts_.reads, 1);
  EXPECT_EQ(counts_.bytes, 2 * kRecordAlignment);
  EXPECT_EQ(reader->Mode().direct, reader->Mode().why_not_direct.empty());
}

TEST_F(PreadRecordReaderTest, GoesBufferedWhereOpenRefusesDirectAndSaysSo) {
  PreadCalls calls = PreadCalls::System();
  calls.open = [](const char* path, int flags) {
    if ((flags & O_DIRECT) != 0) {
      errno = EINVAL;
      return -1;
    }
    return ::open(path, flags);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
  SHOAL_ASSERT_OK(ReadTwo(*reader));
  ExpectTwo();
  EXPECT_FALSE(reader->Mode().direct);
  EXPECT_THAT(reader->Mode().why_not_direct,
              AllOf(HasSubstr(path_), HasSubstr("refuses direct reads")));
}

TEST_F(PreadRecordReaderTest, GoesBufferedWhereTheFirstReadRefusesDirect) {
  PreadCalls calls = PreadCalls::System();
  std::atomic<int> refusals{0};
  calls.pread = [&](int fd, void* buffer, size_t length, off_t offset) -> ssize_t {
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
      ++refusals;
      errno = EINVAL;
      return -1;
    }
    return ::pread(fd, buffer, length, offset);
  };
  calls.open = [](const char* path, int flags) { return ::open(path, flags); };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
  if (!reader->Mode().direct) {
    GTEST_SKIP() << "this file system refuses O_DIRECT when a file is opened";
  }
  SHOAL_ASSERT_OK(ReadTwo(*reader));
  ExpectTwo();
  EXPECT_EQ(refusals, 1);
  EXPECT_FALSE(reader->Mode().direct);
}

TEST_F(PreadRecordReaderTest, EveryThreadThatReadsGoesBuffered) {
  PreadCalls calls = PreadCalls::System();
  calls.pread = [](int fd, void* buffer, size_t length, off_t offset) -> ssize_t {
    if ((::fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
      std::this_thread::yield();  // several threads meet the refusal
      errno = EINVAL;
      return -1;
    }
    return ::pread(fd, buffer, length, offset);
  };
  constexpr int kRounds = 300;
  for (int round = 0; round < kRounds; ++round) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
    std::vector<absl::Status> statuses(6);
    std::vector<std::thread> threads;
    for (absl::Status& status : statuses) {
      threads.emplace_back([&reader, &status] {
        AlignedBuffer buffer = *AlignedBuffer::Allocate(2 * kRecordAlignment);
        ReadCounts counts;
        for (int i = 0; i < 10; ++i) {
          status.Update(reader->Read(7, kRecordAlignment, buffer.bytes(), counts));
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const absl::Status& status : statuses) {
      SHOAL_ASSERT_OK(status);
    }
    ASSERT_FALSE(reader->Mode().direct);
  }
}

TEST_F(PreadRecordReaderTest, GoesOnAfterAShortReadAndCountsBoth) {
  PreadCalls calls = PreadCalls::System();
  calls.pread = [](int fd, void* buffer, size_t length, off_t offset) {
    return ::pread(fd, buffer, std::min<size_t>(length, kRecordAlignment), offset);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
  SHOAL_ASSERT_OK(ReadTwo(*reader));
  ExpectTwo();
  EXPECT_EQ(counts_.reads, 2);
}

TEST_F(PreadRecordReaderTest, RepeatsACallThatASignalInterrupted) {
  PreadCalls calls = PreadCalls::System();
  std::atomic<int> interruptions{3};
  calls.pread = [&](int fd, void* buffer, size_t length, off_t offset) -> ssize_t {
    if (interruptions-- > 0) {
      errno = EINTR;
      return -1;
    }
    return ::pread(fd, buffer, length, offset);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
  SHOAL_ASSERT_OK(ReadTwo(*reader));
  ExpectTwo();
  EXPECT_EQ(counts_.reads, 1);
}

TEST_F(PreadRecordReaderTest, NamesTheFileOfADiskError) {
  PreadCalls calls = PreadCalls::System();
  calls.pread = [](int, void*, size_t, off_t) -> ssize_t {
    errno = EIO;
    return -1;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open(calls));
  EXPECT_THAT(ReadTwo(*reader), StatusIs(absl::StatusCode::kUnavailable,
                                         AllOf(HasSubstr(path_), HasSubstr("Input/output error"))));
}

TEST_F(PreadRecordReaderTest, NamesABankThatWasCutAfterItWasOpened) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open());
  ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(2 * kRecordAlignment)), 0);
  EXPECT_THAT(ReadTwo(*reader), StatusIs(absl::StatusCode::kDataLoss,
                                         AllOf(HasSubstr(path_), HasSubstr("the file ends"))));
}

TEST_F(PreadRecordReaderTest, RefusesASizeThatIsNotTheManifests) {
  EXPECT_THAT(Open(PreadCalls::System(), kBankBytes + kRecordAlignment),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path_), HasSubstr("copy or convert it again"))));
}

TEST_F(PreadRecordReaderTest, RefusesAMissingFileAPipeAndADirectory) {
  EXPECT_THAT(PreadRecordReader::Open({{7, dir_ / "absent", kBankBytes}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(PreadRecordReader::Open({{7, dir_ / "pipe", kBankBytes}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
  EXPECT_THAT(PreadRecordReader::Open({{7, dir_.path(), kBankBytes}}).ok(), false);
}

TEST_F(PreadRecordReaderTest, RefusesUnalignedReadsAndUnknownLayers) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto reader, Open());
  EXPECT_THAT(reader->Read(7, 512, buffer_.bytes(), counts_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("aligned")));
  EXPECT_THAT(reader->Read(7, 0, buffer_.bytes().first(100), counts_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("aligned")));
  EXPECT_THAT(reader->Read(8, 0, buffer_.bytes(), counts_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("layer 8 has no bank")));
  EXPECT_EQ(counts_.reads, 0);
}

}  // namespace
}  // namespace shoal

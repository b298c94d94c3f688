#include "expert_node/drill/read_throttle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

// Stands still, but for who sleeps on it.
class SleepingClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Sleep(absl::Duration time) { now_ += time; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

class EmptyReader final : public RecordReader {
 public:
  explicit EmptyReader(absl::Status status = absl::OkStatus()) : status_(std::move(status)) {}
  absl::Status Read(int64_t, uint64_t, std::span<std::byte> out, ReadCounts& counts) override {
    ++counts.reads;
    counts.bytes += out.size();
    return status_;
  }
  std::string PathOf(int64_t) const override { return "bank"; }
  ReaderMode Mode() const override { return {true, "empty", ""}; }

 private:
  const absl::Status status_;
};

class ReadThrottleTest : public ::testing::Test {
 protected:
  absl::Status Read(RecordReader& reader, size_t bytes) {
    std::vector<std::byte> out(bytes);
    return reader.Read(1, 0, out, counts_);
  }
  absl::Duration Passed() const { return clock_.Now() - absl::UnixEpoch(); }

  SleepingClock clock_;
  ReadThrottle throttle_{1000, clock_, [this](absl::Duration time) { clock_.Sleep(time); }};
  ThrottledReader reader_{std::make_unique<EmptyReader>(), throttle_};
  ThrottledReader other_{std::make_unique<EmptyReader>(), throttle_};
  ReadCounts counts_;
};

TEST_F(ReadThrottleTest, AReadTakesItsBytesAtTheRate) {
  SHOAL_ASSERT_OK(Read(reader_, 500));
  EXPECT_EQ(Passed(), absl::Milliseconds(500));
  SHOAL_ASSERT_OK(Read(reader_, 2000));
  EXPECT_EQ(Passed(), absl::Milliseconds(2500));
  EXPECT_EQ(counts_.reads, 2);
  EXPECT_EQ(counts_.bytes, 2500U);
}

TEST_F(ReadThrottleTest, ReadersShareTheRate) {
  SHOAL_ASSERT_OK(Read(reader_, 1000));
  SHOAL_ASSERT_OK(Read(other_, 1000));
  EXPECT_EQ(Passed(), absl::Seconds(2));
}

TEST_F(ReadThrottleTest, ReadsThatAreAskedForTogetherAreDoneOneAfterAnother) {
  const absl::Time now = clock_.Now();
  EXPECT_EQ(throttle_.Reserve(1000), now + absl::Seconds(1));
  EXPECT_EQ(throttle_.Reserve(3000), now + absl::Seconds(4));
  // Who comes second waits for the first too.
  throttle_.WaitUntil(now + absl::Seconds(4));
  EXPECT_EQ(Passed(), absl::Seconds(4));
  throttle_.WaitUntil(now + absl::Seconds(1));
  EXPECT_EQ(Passed(), absl::Seconds(4));
}

TEST_F(ReadThrottleTest, TimeInWhichNobodyReadIsNotSavedUp) {
  SHOAL_ASSERT_OK(Read(reader_, 1000));
  clock_.Sleep(absl::Seconds(60));
  SHOAL_ASSERT_OK(Read(reader_, 1000));
  EXPECT_EQ(Passed(), absl::Seconds(62));
}

TEST_F(ReadThrottleTest, ErrorsAndModeAreTheReaders) {
  ThrottledReader failing(std::make_unique<EmptyReader>(absl::UnavailableError("no disk")),
                          throttle_);
  EXPECT_THAT(Read(failing, 1000), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no disk")));
  EXPECT_EQ(failing.PathOf(1), "bank");
  EXPECT_EQ(failing.Mode().engine, "empty");
}

}  // namespace
}  // namespace shoal

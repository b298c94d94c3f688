#include "coordinator/cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

class ProgressLineTest : public ::testing::Test {
 protected:
  auto Writer() {
    return [this](absl::string_view text) { written_.emplace_back(text); };
  }
  ManualClock clock_;
  std::vector<std::string> written_;
};

const ByteProgress kHalf = {.step = "layer 3 experts",
                            .bytes_done = 500'000'000,
                            .bytes_total = 1'000'000'000,
                            .bytes_skipped = 0};

// 500 MB in 10 s are 50 MB/s; the other 500 MB take 10 s more.
TEST(FormatByteProgressTest, GivesPercentRateAndTimeLeft) {
  EXPECT_EQ(FormatByteProgress(kHalf, absl::Seconds(10)),
            "layer 3 experts  50.0 %  50.0 MB/s  ETA 10s");
}

// 64 tokens in 4 s are 16 a second; the other 192 take 12 s more.
TEST(FormatTokenProgressTest, GivesRateAndTimeLeft) {
  EXPECT_EQ(FormatTokenProgress({"prompt", 64, 256}, absl::Seconds(4)),
            "prompt  64 of 256 tokens  16.00 tokens/s  ETA 12s");
  EXPECT_EQ(FormatTokenProgress({"prompt", 0, 256}, absl::Seconds(4)), "prompt  0 of 256 tokens");
}

TEST(FormatByteProgressTest, SkippedBytesAreNoPartOfTheRate) {
  ByteProgress progress = kHalf;
  progress.bytes_skipped = 400'000'000;
  EXPECT_EQ(FormatByteProgress(progress, absl::Seconds(10)),
            "layer 3 experts  50.0 %  10.0 MB/s  ETA 50s");
}

TEST(FormatByteProgressTest, ClaimsNoRateBeforeThereIsOne) {
  EXPECT_EQ(FormatByteProgress({.step = "trunk", .bytes_total = 10}, absl::Seconds(1)),
            "trunk  0.0 %");
  EXPECT_EQ(FormatByteProgress(kHalf, absl::ZeroDuration()), "layer 3 experts  50.0 %");
  EXPECT_EQ(FormatByteProgress({.step = "start"}, absl::Seconds(1)), "start");
}

TEST_F(ProgressLineTest, TerminalLineIsRewrittenAtMostTenTimesASecond) {
  {
    ProgressLine line(clock_, true, Writer());
    line.Update({.step = "one"});
    clock_.now += absl::Milliseconds(99);
    line.Update({.step = "two"});
    clock_.now += absl::Milliseconds(1);
    line.Update({.step = "three"});
  }
  EXPECT_THAT(written_, ElementsAre("\rone\x1b[K", "\rthree\x1b[K", "\r\x1b[K"));
}

TEST_F(ProgressLineTest, ElsewhereALineComesEveryFiveSeconds) {
  {
    ProgressLine line(clock_, false, Writer());
    line.Update({.step = "one"});
    clock_.now += absl::Seconds(5);
    line.Update({.step = "two"});
    clock_.now += absl::Seconds(4);
    line.Update({.step = "three"});
  }
  EXPECT_THAT(written_, ElementsAre("two\n"));
}

}  // namespace
}  // namespace shoal

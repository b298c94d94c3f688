#include "common/log/log_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/log/log_limit.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;

const absl::Time kNow = absl::FromUnixMillis(1'780'000'000'123);

// Time that the test moves.
class HandClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = kNow;
};

TEST(LogLineTest, TextHasTheCallAndTheCodeWhereThereAreSome) {
  const LogLine all = {
      .message = "layer 3: gone", .call = 0xc0ffee, .code = absl::StatusCode::kDataLoss};
  EXPECT_EQ(FormatLogLine("shoal", all, LogFormat::kText, kNow),
            "shoal: call 0000000000c0ffee: DATA_LOSS: layer 3: gone");
  EXPECT_EQ(FormatLogLine("shoal-node", {.message = "draining"}, LogFormat::kText, kNow),
            "shoal-node: draining");
}

TEST(LogLineTest, JsonIsOneObjectWithWhatThereIs) {
  const LogLine all = {
      .message = "a \"b\"\n\xff", .call = 0xc0ffee, .code = absl::StatusCode::kDataLoss};
  const std::string line = FormatLogLine("shoal", all, LogFormat::kJson, kNow);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  // The time is 1,780,000,000.123 s after 1970.
  EXPECT_EQ(nlohmann::json::parse(line), (nlohmann::json{{"time", "2026-05-28T20:26:40.123Z"},
                                                         {"program", "shoal"},
                                                         {"message", "a \"b\"\n\xef\xbf\xbd"},
                                                         {"call", "0000000000c0ffee"},
                                                         {"code", "DATA_LOSS"}}));
  EXPECT_EQ(nlohmann::json::parse(FormatLogLine("shoal", {.message = "x"}, LogFormat::kJson, kNow))
                .size(),
            3);
}

TEST(LogLineTest, CallsHaveDifferentNumbers) {
  EXPECT_NE(NewCallNumber(), NewCallNumber());
  EXPECT_EQ(CallName(UINT64_MAX), "ffffffffffffffff");
}

TEST(LogLimitTest, AfterSoManyLinesAMinuteTheirNumberIsTold) {
  HandClock clock;
  std::vector<std::string> lines;
  LogLimit limit([&lines](const LogLine& line) { lines.emplace_back(line.message); }, 2, clock);
  for (int i = 0; i < 5; ++i) {
    limit.Add({.message = "x"});
  }
  EXPECT_THAT(lines, ElementsAre("x", "x"));
  clock.now += absl::Minutes(1);
  limit.Add({.message = "y"});
  EXPECT_THAT(lines, ElementsAre("x", "x", "3 more such lines were left out", "y"));
}

}  // namespace
}  // namespace shoal

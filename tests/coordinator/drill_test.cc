#include "coordinator/drill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <utility>
#include <vector>

#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::NewSession;
using ::shoal::testing::OpenModel;
using ::shoal::testing::RvqModel;
using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DrillReportTest, TheStrikeComesAfterAQuarter) {
  EXPECT_EQ(StrikeIndex(200), 50);
  EXPECT_EQ(StrikeIndex(kLeastDrillTokens), 2);
}

TEST(DrillReportTest, TheGapIsBeyondTheSlowerSteadyState) {
  DrillReport report;
  report.steady_before = absl::Milliseconds(10);
  report.steady_after = absl::Milliseconds(30);
  report.longest = absl::Milliseconds(100);
  EXPECT_EQ(report.Gap(), absl::Milliseconds(70));
  report.steady_before = absl::Milliseconds(40);
  EXPECT_EQ(report.Gap(), absl::Milliseconds(60));
  report.longest = absl::Milliseconds(20);
  EXPECT_EQ(report.Gap(), absl::ZeroDuration());
}

class DrillTest : public ::testing::Test {
 protected:
  static constexpr int64_t kContext = 64;

  void SetUp() override {
    model_ = OpenModel(RvqModel(), {.context_tokens = kContext});
    ASSERT_NE(model_, nullptr);
    session_ = NewSession(*model_);
    ASSERT_NE(session_, nullptr);
    options_.tokens = 12;
    options_.strike = [this] {
      struck_after_ = seen_.size();
      return absl::OkStatus();
    };
    options_.on_token = [this](int answer, int64_t index, absl::Duration /*time*/) {
      seen_.emplace_back(answer, index);
    };
  }

  absl::StatusOr<DrillReport> Run(const std::stop_token& stop = {}) {
    return RunDrill(*model_, *session_, options_, stop);
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<Session> session_;  // gone before the model is
  DrillOptions options_;
  std::vector<std::pair<int, int64_t>> seen_;
  size_t struck_after_ = 0;
};

TEST_F(DrillTest, StrikesOnceInTheSecondAnswer) {
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_TRUE(report->same_tokens);
  EXPECT_TRUE(report->same_logits);
  ASSERT_EQ(seen_.size(), 24);
  EXPECT_EQ(seen_.front(), std::make_pair(0, int64_t{0}));
  EXPECT_EQ(seen_.back(), std::make_pair(1, int64_t{11}));
  // All of the first answer, and tokens 0 to 2 of the second.
  EXPECT_EQ(struck_after_, 12 + 3);
}

TEST_F(DrillTest, NoticesAnAnswerThatIsAnother) {
  options_.strike = [this] { return session_->Extend(std::vector<int32_t>{5, 6, 7}); };
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->same_tokens);
  EXPECT_FALSE(report->same_logits);
}

TEST_F(DrillTest, NoticesLogitsThatDifferUnderTheSameTokens) {
  // One token earlier in the past moves every logit, and the last token's are all that is left to
  // choose by.
  options_.tokens = kLeastDrillTokens;
  options_.strike = [this] {
    std::vector<int32_t> tokens = session_->tokens();
    tokens.front() = tokens.front() == 5 ? 6 : 5;
    session_->Reset();
    return session_->Extend(tokens);
  };
  const auto report = Run();
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->same_logits);
}

TEST_F(DrillTest, AStrikeThatFailsEndsIt) {
  options_.strike = [] { return absl::FailedPreconditionError("no drills here"); };
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no drills here")));
  EXPECT_EQ(seen_.size(), 12 + 3);
}

TEST_F(DrillTest, AStopEndsIt) {
  std::stop_source stop;
  options_.on_token = [&stop](int /*answer*/, int64_t index, absl::Duration /*time*/) {
    if (index == 4) {
      stop.request_stop();
    }
  };
  EXPECT_THAT(Run(stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
}

TEST_F(DrillTest, RefusesTokensThatAreTooFewOrDoNotFit) {
  options_.tokens = kLeastDrillTokens - 1;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokens: 7; 8 to")));
  options_.tokens = kContext;
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--ctx")));
  EXPECT_TRUE(seen_.empty());
}

}  // namespace
}  // namespace shoal

#include "expert_node/service/call_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CallKind kKind = CallKind::kAnswer;
const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

CallLimits Three() { return CallLimits({{kKind, {.server = 3, .caller = 2}}}); }

// A call that came whole.
absl::Status Open(CallLimits& limits, const std::string& caller) {
  const absl::Status begun = limits.Begin(kKind, caller, kNow);
  return begun.ok() ? limits.Enter(kKind, caller) : begun;
}

TEST(CallLimitsTest, KnowsMethodsByTheirNames) {
  EXPECT_EQ(CallKindOf("/shoal.v1.ExpertNode/Execute"), CallKind::kExecute);
  EXPECT_EQ(CallKindOf("/shoal.v1.ExpertNode/FetchModel"), CallKind::kCopy);
  EXPECT_EQ(CallKindOf("/shoal.v1.ExpertNode/Fill"), CallKind::kFill);
  EXPECT_EQ(CallKindOf("/shoal.v1.Inference/Chat"), CallKind::kAnswer);
  EXPECT_EQ(CallKindOf("/shoal.v1.Inference/Detokenize"), CallKind::kText);
  EXPECT_EQ(CallKindOf("/shoal.v1.Cluster/Drain"), CallKind::kManage);
  EXPECT_EQ(CallKindOf("/grpc.health.v1.Health/Watch"), CallKind::kWatch);
  EXPECT_EQ(CallKindOf("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
            CallKind::kWatch);
  EXPECT_EQ(CallKindOf("/grpc.health.v1.Health/Check"), CallKind::kOther);
  EXPECT_EQ(CallKindOf(""), CallKind::kOther);
}

TEST(CallLimitsTest, ACallerWithItsShareIsRefusedWhileOthersAreNot) {
  CallLimits limits = Three();
  SHOAL_EXPECT_OK(Open(limits, "a"));
  SHOAL_EXPECT_OK(Open(limits, "a"));
  EXPECT_THAT(limits.Begin(kKind, "a", kNow),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("a has 2 calls of Generate and Chat"),
                             HasSubstr("one caller may have 2"))));
  SHOAL_EXPECT_OK(Open(limits, "b"));
  limits.Leave(kKind, "a");
  SHOAL_EXPECT_OK(limits.Begin(kKind, "a", kNow));
}

TEST(CallLimitsTest, TheServersLimitHoldsForAllTogether) {
  CallLimits limits = Three();
  for (const char* caller : {"a", "b", ""}) {
    SHOAL_EXPECT_OK(Open(limits, caller));
  }
  EXPECT_THAT(limits.Begin(kKind, "c", kNow),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the server has 3 calls")));
  SHOAL_EXPECT_OK(limits.Begin(CallKind::kText, "c", kNow));
  limits.Leave(kKind, "");
  SHOAL_EXPECT_OK(limits.Begin(kKind, "c", kNow));
}

TEST(CallLimitsTest, WhoCannotBeToldApartHasTheServersLimitAlone) {
  CallLimits limits = Three();
  for (int i = 0; i < 3; ++i) {
    SHOAL_EXPECT_OK(Open(limits, ""));
  }
  EXPECT_THAT(limits.Begin(kKind, "", kNow),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("the server has 3 calls")));
}

// A head of a call without the rest costs memory too.
TEST(CallLimitsTest, CallsThatNeverComeWholeCountForAMinute) {
  CallLimits limits = Three();
  SHOAL_EXPECT_OK(limits.Begin(kKind, "a", kNow));
  SHOAL_EXPECT_OK(limits.Begin(kKind, "a", kNow));
  const absl::Time then = kNow + CallLimits::kUnheard;
  EXPECT_THAT(limits.Begin(kKind, "a", then), StatusIs(absl::StatusCode::kResourceExhausted, _));
  SHOAL_EXPECT_OK(limits.Begin(kKind, "a", then + absl::Seconds(1)));
}

// Where no one looks at the headers, and where many come at once.
TEST(CallLimitsTest, TheLimitHoldsAlsoWhereOnlyWholeCallsAreSeen) {
  CallLimits limits = Three();
  SHOAL_EXPECT_OK(limits.Enter(kKind, "a"));
  SHOAL_EXPECT_OK(limits.Enter(kKind, "a"));
  EXPECT_THAT(limits.Enter(kKind, "a"), StatusIs(absl::StatusCode::kResourceExhausted, _));
  for (int i = 0; i < 3; ++i) {
    limits.Leave(kKind, "a");
  }
  SHOAL_EXPECT_OK(limits.Enter(kKind, "a"));
}

}  // namespace
}  // namespace shoal

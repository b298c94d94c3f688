// Fast to fall, slow to rise; and deadlines from what was seen.
#include "coordinator/pool/node_health.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace shoal {
namespace {

constexpr absl::Time kStart = absl::UnixEpoch();

TEST(NodeHealthTest, IsLiveAsSoonAsItsFirstStreamIsOpen) {
  NodeHealth health;
  EXPECT_EQ(health.StateAt(kStart), NodeState::kLost);
  health.OnOpen(kStart);
  EXPECT_EQ(health.StateAt(kStart), NodeState::kLive);
}

TEST(NodeHealthTest, ANodeThatComesBackIsOnProbation) {
  NodeHealth health;
  health.OnOpen(kStart);
  health.OnLost(kStart + absl::Seconds(10));
  EXPECT_EQ(health.StateAt(kStart + absl::Seconds(10)), NodeState::kLost);
  const absl::Time back = kStart + absl::Seconds(20);
  health.OnOpen(back);
  EXPECT_EQ(health.StateAt(back), NodeState::kSuspect);
  EXPECT_EQ(health.StateAt(back + NodeHealth::kProbation - absl::Nanoseconds(1)),
            NodeState::kSuspect);
  EXPECT_EQ(health.StateAt(back + NodeHealth::kProbation), NodeState::kLive);
}

TEST(NodeHealthTest, AMissedDeadlineMakesItSuspectForAWhile) {
  NodeHealth health;
  health.OnOpen(kStart);
  health.OnMissedDeadline(kStart);
  EXPECT_EQ(health.StateAt(kStart), NodeState::kSuspect);
  EXPECT_EQ(health.StateAt(kStart + NodeHealth::kProbation), NodeState::kLive);
}

TEST(NodeHealthTest, ProbationDoublesWithEveryFallThatFollowsSoonUpToALimit) {
  NodeHealth health;
  health.OnOpen(kStart);
  absl::Time now = kStart;
  absl::Duration expected = NodeHealth::kProbation;
  for (int fall = 0; fall < 8; ++fall) {
    health.OnMissedDeadline(now);
    EXPECT_EQ(health.StateAt(now + expected - absl::Nanoseconds(1)), NodeState::kSuspect) << fall;
    EXPECT_EQ(health.StateAt(now + expected), NodeState::kLive) << fall;
    now += expected;
    expected = std::min(expected * 2, NodeHealth::kLongestProbation);
  }
  EXPECT_EQ(expected, NodeHealth::kLongestProbation);
  now += NodeHealth::kForgiveAfter;
  health.OnMissedDeadline(now);
  EXPECT_EQ(health.StateAt(now + NodeHealth::kProbation), NodeState::kLive);
}

TEST(NodeHealthTest, SeveralMissesOfOneMomentAreOneFall) {
  NodeHealth health;
  health.OnOpen(kStart);
  for (int miss = 0; miss < 10; ++miss) {
    health.OnMissedDeadline(kStart);
  }
  EXPECT_EQ(health.StateAt(kStart + NodeHealth::kProbation), NodeState::kLive);
}

TEST(LayerDeadlineTest, IsUnknownUntilAReplyOfThatKindHasCome) {
  LayerDeadline deadline;
  EXPECT_EQ(deadline.For(1), LayerDeadline::kUnknown);
  deadline.Add(64, absl::Seconds(1));
  EXPECT_EQ(deadline.For(1), LayerDeadline::kUnknown);
}

TEST(LayerDeadlineTest, IsFourTimesTheNinetyNinthPercentileAndSlack) {
  LayerDeadline deadline;
  for (int i = 1; i <= 100; ++i) {
    deadline.Add(1, absl::Milliseconds(i));
  }
  // The 99th of 100 samples.
  EXPECT_EQ(deadline.For(1), LayerDeadline::kSlack + 4 * absl::Milliseconds(99));
  deadline.Add(10, absl::Milliseconds(50));
  EXPECT_EQ(deadline.For(100), LayerDeadline::kSlack + 4 * 100 * absl::Milliseconds(5));
}

TEST(LayerDeadlineTest, KnowsHowLongOneRowTakes) {
  LayerDeadline deadline;
  EXPECT_EQ(deadline.SingleRowPercentile(50), absl::ZeroDuration());
  for (int i = 1; i <= 20; ++i) {
    deadline.Add(1, absl::Milliseconds(i));
  }
  deadline.Add(2, absl::Hours(1));
  EXPECT_EQ(deadline.SingleRowPercentile(50), absl::Milliseconds(10));
  EXPECT_EQ(deadline.SingleRowPercentile(95), absl::Milliseconds(19));
}

TEST(LayerDeadlineTest, ForgetsOldReplies) {
  LayerDeadline deadline;
  deadline.Add(1, absl::Hours(1));
  for (size_t i = 0; i < LayerDeadline::kSamples; ++i) {
    deadline.Add(1, absl::Milliseconds(2));
  }
  EXPECT_EQ(deadline.For(1), LayerDeadline::kSlack + absl::Milliseconds(8));
}

}  // namespace
}  // namespace shoal

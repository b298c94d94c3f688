#include "coordinator/service/plan_message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shoal/v1/cluster.pb.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

PoolPlan Plan() {
  return {std::string(64, 'a'),
          7,
          {{"attic", "10.0.0.2:7071", {{{0, 5}, {0, 32}}}, {{{5, 8}, {0, 32}}}},
           {"cellar", "10.0.0.3:7071", {{{5, 8}, {0, 32}}}}}};
}

TEST(PlanMessageTest, ComesBackAsItWas) {
  v1::Plan message;
  ToMessage(Plan(), &message);
  const auto plan = FromMessage(message);
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(SerializePlan(*plan), SerializePlan(Plan()));
}

TEST(PlanMessageTest, ARangeThatIsAbsentOrEmptyIsRefusedByField) {
  v1::Plan message;
  ToMessage(Plan(), &message);
  message.mutable_nodes(1)->mutable_slices(0)->clear_units();
  EXPECT_THAT(FromMessage(message),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("plan.nodes[1].slices[0]")));
  message.Clear();
  ToMessage(Plan(), &message);
  message.mutable_nodes(0)->mutable_copies(0)->mutable_experts()->set_end(0);
  EXPECT_THAT(FromMessage(message),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("plan.nodes[0].copies[0]")));
}

}  // namespace
}  // namespace shoal

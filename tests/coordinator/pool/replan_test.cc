// Plans that go on from others, against arithmetic done by hand.
#include "coordinator/pool/replan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/pool/planned_model.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::DiskNodes;
using ::shoal::testing::kBytesPerUnit;
using ::shoal::testing::kExperts;
using ::shoal::testing::kLayers;
using ::shoal::testing::kSmallFiles;
using ::shoal::testing::kUnitBytes;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TestManifest;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Slices = std::vector<ExpertSlice>;

ExpertSlice Units(int64_t begin, int64_t end) { return {{begin, end}, {0, kExperts}}; }

// The first `count` nodes placed anew.
PoolPlan Placed(const Manifest& manifest, const std::vector<NodeRates>& nodes, size_t count,
                Placement placement, int64_t copies = 1) {
  const auto proposal =
      ProposePool(manifest, std::span(nodes).first(count), placement, {.copies = copies});
  EXPECT_TRUE(proposal.ok()) << proposal.status();
  return proposal.ok() ? proposal->plan : PoolPlan();
}

const PoolNode& NodeNamed(const Replan& replan, const std::string& name) {
  for (const PoolNode& node : replan.proposal.plan.nodes) {
    if (node.name == name) {
      return node;
    }
  }
  ADD_FAILURE() << "no node " << name;
  return replan.proposal.plan.nodes.front();
}

TEST(ReplanTest, AMachineMoreFetchesItsShareAndNobodyElseAnything) {
  constexpr int64_t kUnits = 120;
  constexpr uint64_t kAllBytes = kLayers * kExperts * kUnits * kUnitBytes;
  const Manifest manifest = TestManifest(kUnits);
  for (const Placement placement : {Placement::kUnits, Placement::kExperts}) {
    for (size_t n = 2; n <= 4; ++n) {
      const std::vector<NodeRates> nodes = DiskNodes(std::vector<double>(n + 1, 1000));
      PoolPlan old = Placed(manifest, nodes, n, placement);
      old.epoch = 7;
      SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan,
                                 ReplanPool(manifest, nodes, old, {.placement = placement}));
      EXPECT_EQ(replan.proposal.plan.epoch, 8);
      EXPECT_THAT(replan.added, ElementsAre(nodes.back().name));
      // 120 units can be cut evenly, 256 experts to one more or less.
      const double item = placement == Placement::kUnits ? 0 : 1.0 / kExperts;
      EXPECT_THAT(replan.move.fraction, DoubleNear(1.0 / static_cast<double>(n + 1), item + 1e-9));
      EXPECT_DOUBLE_EQ(static_cast<double>(replan.move.bytes), replan.move.fraction * kAllBytes);
      EXPECT_EQ(NodeNamed(replan, nodes.back().name).slices.size(), (n + 1) / 2);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_THAT(Uncovered(old.nodes[i].slices.front(), replan.proposal.plan.nodes[i].stored()),
                    IsEmpty());
        EXPECT_EQ(replan.proposal.nodes[i].stored_bytes,
                  PartitionBytes(manifest, old.nodes[i].slices));
      }
    }
  }
}

TEST(ReplanTest, ThePredictionsAreOfTheNewPlan) {
  const std::vector<NodeRates> nodes = DiskNodes(std::vector<double>(3, 4 * kBytesPerUnit));
  const Manifest manifest = TestManifest(12);
  const PoolPlan old = Placed(manifest, nodes, 2, Placement::kUnits);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, nodes, old, {}));
  // 6 and 6 of 12 become 4 each: a second a layer.
  EXPECT_THAT(NodeNamed(replan, nodes[2].name).slices, ElementsAre(Units(4, 8)));
  EXPECT_DOUBLE_EQ(replan.proposal.layer_seconds, 1);
  EXPECT_DOUBLE_EQ(replan.proposal.tokens_per_second, 0.1);
  EXPECT_EQ(replan.copies, 1);
  EXPECT_THAT(replan.stored_once, IsEmpty());  // one copy is what there was
  // Where the new one dies both take back what they gave: 6 units again.
  EXPECT_EQ(replan.proposal.nodes[2].stand_ins, (std::vector<size_t>{0, 1}));
  EXPECT_DOUBLE_EQ(replan.proposal.nodes[2].tokens_per_second_after_death, 0.1 / 1.5);
  // What the old ones compute nobody else has.
  EXPECT_FALSE(replan.proposal.nodes[0].stand_ins.has_value());
  EXPECT_EQ(replan.proposal.tokens_per_second_after_worst_death, 0);
  ASSERT_TRUE(replan.anew.has_value());
  EXPECT_DOUBLE_EQ(replan.anew->tokens_per_second, 0.1);
  // Of 0-3, 4-7 and 8-11 the second holds 6 and 7 alone and is filled anew, as is the third.
  EXPECT_DOUBLE_EQ(replan.anew->move.fraction, 2.0 / 3);
}

TEST(ReplanTest, WithTwoCopiesEverythingKeepsTwo) {
  const Manifest manifest = TestManifest(12);
  const std::vector<NodeRates> nodes = DiskNodes({1000, 1000, 1000, 1000});
  const PoolPlan old = Placed(manifest, nodes, 3, Placement::kUnits, 2);
  for (const int64_t copies : {0, 2}) {
    ReplanOptions options;
    if (copies > 0) {
      options.copies = copies;
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, nodes, old, options));
    EXPECT_EQ(replan.copies, 2);
    EXPECT_DOUBLE_EQ(replan.move.fraction, 0.25);
    EXPECT_GT(replan.proposal.tokens_per_second_after_worst_death, 0);
    EXPECT_THAT(NodeNamed(replan, nodes[3].name).copies, IsEmpty());
  }
}

TEST(ReplanTest, AMachineMoreMakesASecondCopyOfWhatHasOne) {
  const Manifest manifest = TestManifest(12);
  const std::vector<NodeRates> nodes = DiskNodes({1000, 1000, 1000});
  const PoolPlan old = Placed(manifest, nodes, 2, Placement::kUnits);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, nodes, old, {.copies = 2}));
  const PoolNode& added = NodeNamed(replan, nodes[2].name);
  EXPECT_THAT(added.slices, ElementsAre(Units(4, 8)));
  EXPECT_THAT(added.copies, ElementsAre(Units(0, 4), Units(8, 12)));
  EXPECT_DOUBLE_EQ(replan.move.fraction, 1);
  EXPECT_EQ(replan.copies, 2);
  // Without a new machine there is nobody to make them.
  EXPECT_THAT(ReplanPool(manifest, std::span(nodes).first(2), old, {.copies = 2}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("units 0-11 of experts 0-255 would be stored once")));
}

TEST(ReplanTest, WhereANodeIsGoneItsCopiesAreComputed) {
  const Manifest manifest = TestManifest(12);
  const std::vector<NodeRates> all = DiskNodes({1000, 1000, 1000});
  const PoolPlan old = Placed(manifest, all, 3, Placement::kUnits, 2);
  const std::vector<NodeRates> left = {all[0], all[2]};
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, left, old, {}));
  EXPECT_THAT(replan.gone, ElementsAre(all[1].name));
  EXPECT_THAT(replan.added, IsEmpty());
  EXPECT_EQ(replan.move.bytes, 0);
  EXPECT_EQ(replan.copies, 1);
  // The first has 4 and the 4 of the dead one; the last stores the first's and takes two of those.
  EXPECT_EQ(replan.proposal.nodes[0].items, 6);
  EXPECT_EQ(replan.proposal.nodes[1].items, 6);
  EXPECT_EQ(replan.stored_once, (Slices{Units(4, 12)}));
  EXPECT_THAT(ReplanPool(manifest, left, old, {.copies = 2}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("units 4-11")));
}

TEST(ReplanTest, WhatNobodyStoresAnyMoreIsNamed) {
  const Manifest manifest = TestManifest(12);
  const std::vector<NodeRates> all = DiskNodes({1000, 1000, 1000, 1000});
  const PoolPlan old = Placed(manifest, all, 3, Placement::kUnits);
  const std::vector<NodeRates> left = {all[0], all[2]};
  const auto lost =
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("units 4-7 of experts 0-255"), HasSubstr(all[1].name)));
  EXPECT_THAT(ReplanPool(manifest, left, old, {}).status(), lost);
  EXPECT_THAT(ReplanPool(manifest, left, old, {.replace = true}).status(), lost);
  const std::vector<NodeRates> with_new = {all[0], all[2], all[3]};
  EXPECT_THAT(ReplanPool(manifest, with_new, old, {}).status(), lost);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan,
                             ReplanPool(manifest, with_new, old, {.replace = true}));
  EXPECT_THAT(NodeNamed(replan, all[3].name).slices, ElementsAre(Units(4, 8)));
  EXPECT_DOUBLE_EQ(replan.move.fraction, 4.0 / 12);
}

TEST(ReplanTest, APlanOfOneNodeGoesOnByWhatIsFaster) {
  // Collisions make whole experts slower; a unit of 512 bytes that is read with 4096 makes units slower.
  for (const uint64_t unit_bytes : {kUnitBytes, uint64_t{512}}) {
    const Manifest manifest = TestManifest(8, unit_bytes);
    const std::vector<NodeRates> nodes = DiskNodes({kBytesPerUnit, kBytesPerUnit});
    const PoolPlan old = Placed(manifest, nodes, 1, Placement::kUnits);
    SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, nodes, old, {}));
    EXPECT_EQ(replan.proposal.placement,
              unit_bytes == kUnitBytes ? Placement::kUnits : Placement::kExperts);
    EXPECT_DOUBLE_EQ(replan.move.fraction, 0.5);
  }
}

TEST(ReplanTest, ANodeIsNotBlamedForWhatIsKept) {
  // The second is ten times as fast and stores 2 of 12 units, so that the others share 10.
  const Manifest manifest = TestManifest(12);
  const std::vector<NodeRates> nodes = DiskNodes({1000, 10000, 1000});
  PoolPlan old = Placed(manifest, nodes, 2, Placement::kUnits);
  old.nodes[0].slices = {Units(0, 10)};
  old.nodes[1].slices = {Units(10, 12)};
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(manifest, nodes, old, {}));
  EXPECT_EQ(replan.proposal.nodes[0].items, 5);
  EXPECT_EQ(replan.proposal.nodes[1].items, 2);
  ASSERT_TRUE(replan.anew.has_value());
  // 1, 10 and 1: a fifth of the time of 5. Without the first 11 and 1: longer than that.
  EXPECT_THAT(replan.anew->tokens_per_second / replan.proposal.tokens_per_second,
              DoubleNear(5, 1e-9));
  EXPECT_GT(replan.proposal.nodes[0].tokens_per_second_without, replan.proposal.tokens_per_second);
  EXPECT_FALSE(replan.proposal.nodes[0].slows_the_pool);
}

TEST(ReplanTest, AddressesAreThoseOfTheNodes) {
  std::vector<NodeRates> nodes = DiskNodes({1000, 1000, 1000});
  nodes[0].address = "10.0.0.1:7071";
  nodes[1].address = "10.0.0.2:7071";
  PoolPlan old = Placed(TestManifest(), nodes, 2, Placement::kUnits);
  nodes[0].address = "10.0.0.9:7071";
  nodes[1].address = "";
  nodes[2].address = "10.0.0.3:7071";
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(TestManifest(), nodes, old, {}));
  EXPECT_EQ(replan.proposal.plan.nodes[0].address, "10.0.0.9:7071");
  EXPECT_EQ(replan.proposal.plan.nodes[1].address, "10.0.0.2:7071");
  EXPECT_EQ(replan.proposal.plan.nodes[2].address, "10.0.0.3:7071");
}

TEST(ReplanTest, ANewNodeThatHoldsEverythingFetchesNothing) {
  std::vector<NodeRates> nodes = DiskNodes({1000, 1000});
  const PoolPlan old = Placed(TestManifest(), nodes, 1, Placement::kUnits);
  nodes[1].holds = {Units(0, 8)};
  nodes[1].free_disk_bytes = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan replan, ReplanPool(TestManifest(), nodes, old,
                                                             {.placement = Placement::kUnits}));
  EXPECT_EQ(replan.move.bytes, 0);
  EXPECT_EQ(replan.proposal.nodes[1].items, 4);
  EXPECT_THAT(replan.added, ElementsAre(nodes[1].name));
  EXPECT_EQ(replan.copies, 2);
}

TEST(ReplanTest, TheCoordinatorTakesAShareAndGivesItBack) {
  const Manifest manifest = TestManifest(12);
  std::vector<NodeRates> nodes = DiskNodes({1000, 1000, 1000});
  nodes[2].address = std::string(kOwnAddress);
  nodes[2].free_disk_bytes = 0;
  const PoolPlan old = Placed(manifest, nodes, 2, Placement::kUnits);
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan with, ReplanPool(manifest, nodes, old, {}));
  EXPECT_EQ(with.move.bytes, 0);
  EXPECT_EQ(with.proposal.nodes[2].items, 4);
  EXPECT_EQ(with.proposal.nodes[2].stored_bytes, 0);
  EXPECT_THAT(with.proposal.plan.nodes[2].copies, IsEmpty());
  // It has what either node computes, and nobody outlives it.
  EXPECT_EQ(with.copies, 2);
  EXPECT_EQ(with.proposal.nodes[0].stand_ins, std::vector<size_t>{2});
  EXPECT_FALSE(with.proposal.nodes[2].stand_ins.has_value());
  // It hands back two units to the other, who still has them: 6 of 12 for each, where there were 4.
  EXPECT_DOUBLE_EQ(with.proposal.tokens_per_second_after_worst_death,
                   with.proposal.tokens_per_second / 1.5);
  const std::vector<NodeRates> others = {nodes[0], nodes[1]};
  SHOAL_ASSERT_OK_AND_ASSIGN(const Replan without,
                             ReplanPool(manifest, others, with.proposal.plan, {}));
  EXPECT_THAT(without.gone, ElementsAre(nodes[2].name));
  EXPECT_EQ(without.move.bytes, 0);
  EXPECT_THAT(without.stored_once, IsEmpty());
  EXPECT_THAT(NodeNamed(without, nodes[0].name).slices, ElementsAre(Units(0, 6)));
  EXPECT_THAT(NodeNamed(without, nodes[1].name).slices, ElementsAre(Units(6, 12)));
}

TEST(ReplanTest, WhatMakesNoSenseIsRefused) {
  const Manifest manifest = TestManifest(12);
  std::vector<NodeRates> nodes = DiskNodes({1000, 1000, 1000});
  const PoolPlan old = Placed(manifest, nodes, 2, Placement::kUnits);
  EXPECT_THAT(ReplanPool(manifest, nodes, old, {.placement = Placement::kExperts}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("by units, not by experts")));
  PoolPlan mixed = old;
  mixed.nodes[0].slices = {{{0, 6}, {0, 100}}, {{0, 6}, {100, kExperts}}};
  EXPECT_THAT(ReplanPool(manifest, nodes, mixed, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("plan anew")));
  PoolPlan foreign = old;
  foreign.identity = std::string(64, 'b');
  EXPECT_THAT(ReplanPool(manifest, nodes, foreign, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("identity")));
  // The new one is to store 4 of 12 units.
  nodes[2].free_disk_bytes = kLayers * kExperts * 4 * kUnitBytes + kSmallFiles - 1;
  EXPECT_THAT(ReplanPool(manifest, nodes, old, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(nodes[2].name)));
  nodes[0].holds = {Units(0, 3)};
  EXPECT_THAT(ReplanPool(manifest, nodes, old, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(nodes[0].name), HasSubstr("lacks units 3-5"))));
  nodes[0].holds.clear();
  nodes[0].compute_assumed = true;  // it was asked and is empty
  EXPECT_THAT(ReplanPool(manifest, nodes, old, {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("lacks units 0-5")));
}

}  // namespace
}  // namespace shoal

// Shares, order, disk space and predictions of a pool, against arithmetic done by hand.
#include "coordinator/pool/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/pool/planned_model.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::DiskNode;
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

std::vector<int64_t> Sizes(const PoolProposal& proposal) {
  std::vector<int64_t> sizes;
  for (const PlacedNode& node : proposal.nodes) {
    sizes.push_back(node.items);
  }
  return sizes;
}

std::vector<std::string> Names(const PoolPlan& plan) {
  std::vector<std::string> names;
  for (const PoolNode& node : plan.nodes) {
    names.push_back(node.name);
  }
  return names;
}

std::vector<int64_t> Shares(int64_t total, const std::vector<double>& rates) {
  return Apportion(total, rates);
}

TEST(ApportionTest, LargestRemainder) {
  EXPECT_THAT(Shares(8, {5, 5, 5, 5}), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(Shares(28, {1, 2, 4}), ElementsAre(4, 8, 16));
  // Quotas 1.14, 2.29, 4.57.
  EXPECT_THAT(Shares(8, {1, 2, 4}), ElementsAre(1, 2, 5));
  // Quotas 2.5 each: the first wins.
  EXPECT_THAT(Shares(5, {3, 3}), ElementsAre(3, 2));
  EXPECT_THAT(Shares(8, {7}), ElementsAre(8));
}

TEST(ApportionTest, OneForEachWhereThereAreEnough) {
  // Quotas 7.99 and 0.008.
  EXPECT_THAT(Shares(8, {1000, 1}), ElementsAre(7, 1));
  EXPECT_THAT(Shares(3, {1000, 1, 1}), ElementsAre(1, 1, 1));
  EXPECT_THAT(Shares(2, {1, 1, 1}), ElementsAre(1, 1, 0));
}

TEST(ExpectedSlowestTest, SmallDrawsCountedByHand) {
  const auto slowest = [](const std::vector<ExpertLoad>& loads, int64_t experts, int64_t chosen) {
    return ExpectedSlowest(loads, experts, chosen);
  };
  // 6 draws of 2 from 4: one from each side in 4, both from one side in 2.
  EXPECT_DOUBLE_EQ(slowest({{2, 1, 0}, {2, 1, 0}}, 4, 2), (4 * 1 + 2 * 2) / 6.0);
  EXPECT_DOUBLE_EQ(slowest({{2, 1, 10}, {2, 1, 10}}, 4, 2), (4 * 11 + 2 * 12) / 6.0);
  // 3 draws: both from the first, 2 s; or one from the slow second, 3 s.
  EXPECT_DOUBLE_EQ(slowest({{2, 1, 0}, {1, 3, 0}}, 3, 2), (2 + 3 + 3) / 3.0);
  // The other expert is nobody's.
  EXPECT_DOUBLE_EQ(slowest({{1, 1, 0}}, 2, 1), 0.5);
  // Everyone has a part of every expert.
  EXPECT_DOUBLE_EQ(slowest({{4, 1, 5}, {4, 2, 0}}, 4, 3), 8);
}

// How many times slower than an even split the node with most of 8 chosen experts is.
double Collision(int64_t num_experts, int nodes) {
  const std::vector<ExpertLoad> loads(static_cast<size_t>(nodes), {num_experts / nodes, 1, 0});
  return ExpectedSlowest(loads, num_experts, 8) / (8.0 / nodes);
}

TEST(ExpectedSlowestTest, CollisionsOfWholeExperts) {
  // Counted in exact fractions.
  EXPECT_THAT(Collision(256, 2), DoubleNear(1.2691, 1e-4));
  EXPECT_THAT(Collision(256, 4), DoubleNear(1.7561, 1e-4));
  EXPECT_THAT(Collision(256, 8), DoubleNear(2.5637, 1e-4));
  // The figures that the design was decided by, simulated.
  EXPECT_THAT(Collision(384, 2), DoubleNear(1.27, 0.006));
  EXPECT_THAT(Collision(384, 4), DoubleNear(1.76, 0.006));
  EXPECT_THAT(Collision(384, 8), DoubleNear(2.58, 0.006));
}

TEST(PlacementTest, EqualNodesShareEqually) {
  const std::vector<NodeRates> nodes =
      DiskNodes({2 * kBytesPerUnit, 2 * kBytesPerUnit, 2 * kBytesPerUnit, 2 * kBytesPerUnit});
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposal proposal,
                             ProposePool(TestManifest(), nodes, Placement::kUnits, {}));
  EXPECT_THAT(Sizes(proposal), ElementsAre(2, 2, 2, 2));
  EXPECT_EQ(proposal.plan.nodes[1].slices, (std::vector<ExpertSlice>{{{2, 4}, {0, kExperts}}}));
  EXPECT_TRUE(proposal.plan.nodes[1].copies.empty());
  EXPECT_DOUBLE_EQ(proposal.layer_seconds, 1);
  EXPECT_DOUBLE_EQ(proposal.tokens_per_second, 0.1);
  EXPECT_EQ(proposal.tokens_per_second_after_worst_death, 0);
  EXPECT_EQ(proposal.nodes[0].stored_bytes, kLayers * kExperts * 2 * kUnitBytes + kSmallFiles);
  EXPECT_DOUBLE_EQ(proposal.nodes[0].share, 0.25);
  // 3 + 3 + 2 units: the fullest takes 1.5 s.
  EXPECT_DOUBLE_EQ(proposal.nodes[0].tokens_per_second_without, 0.1 / 1.5);
  EXPECT_FALSE(proposal.nodes[0].slows_the_pool);
}

TEST(PlacementTest, UnequalNodesInProportion) {
  const Manifest manifest = TestManifest(28);
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(manifest, DiskNodes({kBytesPerUnit, 2 * kBytesPerUnit, 4 * kBytesPerUnit}),
                  Placement::kUnits, {}));
  EXPECT_THAT(Sizes(proposal), ElementsAre(4, 8, 16));
  EXPECT_DOUBLE_EQ(proposal.layer_seconds, 4);
  SHOAL_EXPECT_OK(CheckPlan(proposal.plan, manifest));
}

TEST(PlacementTest, MoreNodesThanUnits) {
  std::vector<double> rates(10, 1000);
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposal units,
                             ProposePool(TestManifest(), DiskNodes(rates), Placement::kUnits, {}));
  EXPECT_THAT(Sizes(units), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1));
  EXPECT_THAT(units.left_out, ElementsAre(8, 9));
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal experts,
      ProposePool(TestManifest(), DiskNodes(rates), Placement::kExperts, {}));
  EXPECT_EQ(experts.nodes.size(), 10);
  EXPECT_THAT(experts.left_out, IsEmpty());
}

TEST(PlacementTest, OneNodeHasEverything) {
  for (const Placement placement : {Placement::kUnits, Placement::kExperts}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const PoolProposal proposal,
        ProposePool(TestManifest(), DiskNodes({kBytesPerUnit}), placement, {}));
    EXPECT_EQ(proposal.plan.nodes[0].slices, (std::vector<ExpertSlice>{{{0, 8}, {0, kExperts}}}));
    EXPECT_DOUBLE_EQ(proposal.layer_seconds, 8);
    EXPECT_EQ(proposal.nodes[0].tokens_per_second_without, 0);
    EXPECT_FALSE(proposal.nodes[0].slows_the_pool);
  }
}

TEST(PlacementTest, WithCopiesTheOtherOfTwoComputesEverything) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(TestManifest(), DiskNodes({4 * kBytesPerUnit, 4 * kBytesPerUnit}),
                  Placement::kUnits, {.copies = 2}));
  EXPECT_EQ(proposal.plan.nodes[0].copies, proposal.plan.nodes[1].slices);
  EXPECT_EQ(proposal.plan.nodes[1].copies, proposal.plan.nodes[0].slices);
  EXPECT_EQ(proposal.nodes[0].stored_bytes, kLayers * kExperts * 8 * kUnitBytes + kSmallFiles);
  EXPECT_DOUBLE_EQ(proposal.tokens_per_second, 0.1);
  EXPECT_DOUBLE_EQ(proposal.nodes[0].tokens_per_second_after_death, 0.05);
  EXPECT_EQ(proposal.nodes[0].stand_ins, std::vector<size_t>{1});
  EXPECT_DOUBLE_EQ(proposal.tokens_per_second_after_worst_death, 0.05);
}

// 8 units: the coordinator, twice as fast, computes 4 and stores nothing beside its container; the
// others' copies leave out what is its own, and what it would hold.
TEST(PlacementTest, TheCoordinatorIsInTheChainAndStoresNothing) {
  std::vector<NodeRates> nodes = {DiskNode("a", 1e6), DiskNode("b", 1e6), DiskNode("here", 2e6)};
  nodes[2].address = std::string(kOwnAddress);
  nodes[2].free_disk_bytes = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(TestManifest(), nodes, Placement::kUnits, {.copies = 2, .forecast = {}}));
  ASSERT_EQ(proposal.nodes.size(), 3);
  const auto own = std::find_if(proposal.plan.nodes.begin(), proposal.plan.nodes.end(),
                                [](const PoolNode& node) { return node.is_coordinator(); });
  ASSERT_NE(own, proposal.plan.nodes.end());
  ASSERT_EQ(own->slices.size(), 1);
  EXPECT_EQ(own->slices[0].units.size(), 4);
  EXPECT_THAT(own->copies, IsEmpty());
  const auto place = static_cast<size_t>(own - proposal.plan.nodes.begin());
  EXPECT_EQ(proposal.nodes[place].stored_bytes, 0);
  EXPECT_FALSE(proposal.nodes[place].stand_ins.has_value());
  // Whoever comes before it has no copy; the other has the copy of that one.
  EXPECT_THAT(proposal.plan.nodes[(place + 2) % 3].copies, IsEmpty());
  EXPECT_EQ(proposal.plan.nodes[(place + 1) % 3].copies,
            proposal.plan.nodes[(place + 2) % 3].slices);
  EXPECT_GT(proposal.tokens_per_second_after_worst_death, 0);
}

TEST(PlacementTest, TheChainIsTheOneWithTheBestWorstDeath) {
  // After n1 comes n2. Of its 2 units, which nobody else has, n1 needs twice the time, and hands its
  // own to n4. n2 does the 4 of n4 and one of its own in 2.5 times the time, and n1 two in 2. The
  // other way round n1 would do the 4 of n4.
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(TestManifest(7), DiskNodes({1, 4, 2}), Placement::kUnits, {.copies = 2}));
  EXPECT_THAT(Names(proposal.plan), ElementsAre("n1-0", "n2-2", "n4-1"));
  EXPECT_THAT(Sizes(proposal), ElementsAre(1, 2, 4));
  EXPECT_EQ(proposal.plan.nodes[0].copies, proposal.plan.nodes[1].slices);
  const double health = proposal.tokens_per_second;
  EXPECT_DOUBLE_EQ(proposal.nodes[0].tokens_per_second_after_death, health / 1.25);
  EXPECT_DOUBLE_EQ(proposal.nodes[1].tokens_per_second_after_death, health / 2);
  EXPECT_DOUBLE_EQ(proposal.tokens_per_second_after_worst_death, health / 2.5);
}

TEST(PlacementTest, ManyNodesAreChainedByRisingShares) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposal proposal,
                             ProposePool(TestManifest(36), DiskNodes({8, 1, 6, 3, 5, 4, 7, 2}),
                                         Placement::kUnits, {.copies = 2}));
  EXPECT_THAT(Sizes(proposal), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  // Where the second dies, the first has its two units, and hands its own to the last.
  EXPECT_DOUBLE_EQ(proposal.tokens_per_second_after_worst_death, proposal.tokens_per_second / 2);
}

TEST(PlacementTest, ADiskThatIsTooSmallIsNamedWithBothNumbers) {
  std::vector<NodeRates> nodes = DiskNodes({1000, 1000});
  const uint64_t needed = kLayers * kExperts * 4 * kUnitBytes + kSmallFiles;
  nodes[1].free_disk_bytes = needed;
  SHOAL_EXPECT_OK(ProposePool(TestManifest(), nodes, Placement::kUnits, {}).status());
  nodes[1].free_disk_bytes = needed - 1;
  EXPECT_THAT(ProposePool(TestManifest(), nodes, Placement::kUnits, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("node n1000-1"), HasSubstr(absl::StrCat(needed, " bytes")),
                             HasSubstr(absl::StrCat(needed - 1, " bytes")))));
  // What lies there already needs no space.
  nodes[1].holds = {{{0, 8}, {0, kExperts}}};
  SHOAL_EXPECT_OK(ProposePool(TestManifest(), nodes, Placement::kUnits, {}).status());
}

TEST(PlacementTest, ANodeThatMakesThePoolSlowerIsNamed) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(TestManifest(), DiskNodes({1000, 1}), Placement::kUnits, {}));
  EXPECT_THAT(Sizes(proposal), ElementsAre(7, 1));
  EXPECT_FALSE(proposal.nodes[0].slows_the_pool);
  EXPECT_TRUE(proposal.nodes[1].slows_the_pool);
  // One unit at rate 1 against eight at rate 1000.
  EXPECT_DOUBLE_EQ(proposal.nodes[1].tokens_per_second_without,
                   proposal.tokens_per_second * 1000 / 8);
}

TEST(PlacementTest, TheNetworkCounts) {
  std::vector<NodeRates> nodes = DiskNodes({4 * kBytesPerUnit, 4 * kBytesPerUnit});
  nodes[0].round_trip = absl::Seconds(2);
  // Of 1000 float32 and 1000 int64, 8 ids and weights, and 128 beside.
  nodes[0].link_bytes_per_second = 12'176;
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposal proposal,
                             ProposePool(TestManifest(), nodes, Placement::kUnits, {}));
  EXPECT_DOUBLE_EQ(proposal.nodes[0].times.network, 3);
  EXPECT_DOUBLE_EQ(proposal.nodes[1].times.network, 0);
  EXPECT_DOUBLE_EQ(proposal.layer_seconds, 4);
  EXPECT_TRUE(proposal.nodes[0].slows_the_pool);
}

TEST(PlacementTest, KernelsMemoryAndTrunkCount) {
  std::vector<NodeRates> nodes = DiskNodes({8 * kBytesPerUnit});
  nodes[0].compute_bytes_per_second = 16 * kBytesPerUnit;
  const auto seconds_a_token = [&nodes](const ForecastOptions& options) {
    const auto proposal =
        ProposePool(TestManifest(), nodes, Placement::kUnits, {.copies = 1, .forecast = options});
    return proposal.ok() ? 1 / proposal->tokens_per_second : 0;
  };
  EXPECT_DOUBLE_EQ(seconds_a_token({}), 10);
  EXPECT_DOUBLE_EQ(seconds_a_token({.hit_rate = 0.25}), 7.5);
  EXPECT_DOUBLE_EQ(seconds_a_token({.hit_rate = 0.75}), 5);  // the kernels
  EXPECT_DOUBLE_EQ(seconds_a_token({.trunk_time = absl::Seconds(3)}), 13);
  nodes[0].cache_bytes = kLayers * kExperts * 2 * kUnitBytes;  // of 8 units
  EXPECT_DOUBLE_EQ(seconds_a_token({}), 7.5);
}

TEST(PlacementTest, WholeExpertsInProportion) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const PoolProposal proposal,
      ProposePool(TestManifest(), DiskNodes({1000, 3000}), Placement::kExperts, {.copies = 2}));
  EXPECT_THAT(Sizes(proposal), ElementsAre(64, 192));
  EXPECT_EQ(proposal.plan.nodes[1].slices, (std::vector<ExpertSlice>{{{0, 8}, {64, 256}}}));
  // Alone it computes all 8 units of all 8 experts.
  EXPECT_DOUBLE_EQ(proposal.nodes[0].tokens_per_second_after_death,
                   3000 / (kLayers * 8 * kBytesPerUnit));
}

TEST(PlacementTest, TheFasterPlacementIsFound) {
  const std::vector<NodeRates> nodes = DiskNodes(std::vector<double>(8, 8 * kBytesPerUnit));
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposals sliced, ProposeFaster(TestManifest(), nodes, {}));
  EXPECT_EQ(sliced.best.placement, Placement::kUnits);
  ASSERT_TRUE(sliced.other.has_value());
  EXPECT_THAT(sliced.best.tokens_per_second / sliced.other->tokens_per_second,
              DoubleNear(2.5637, 1e-4));
  // A unit of 512 bytes takes a record of 4096 alone, and eight of them no more together.
  SHOAL_ASSERT_OK_AND_ASSIGN(const PoolProposals whole,
                             ProposeFaster(TestManifest(8, 512), nodes, {}));
  EXPECT_EQ(whole.best.placement, Placement::kExperts);
  EXPECT_THAT(whole.best.tokens_per_second / whole.other->tokens_per_second,
              DoubleNear(8 / 2.5637, 1e-3));
}

TEST(PlacementTest, WhatMakesNoSenseIsRefused) {
  const auto refusal = [](std::vector<NodeRates> nodes, int64_t copies) {
    return ProposeFaster(TestManifest(), nodes, {.copies = copies}).status();
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(refusal({}, 1), invalid("0 nodes"));
  EXPECT_THAT(refusal(DiskNodes({1000}), 2), invalid("2 copies on 1 nodes"));
  EXPECT_THAT(refusal(DiskNodes({1000, 1000, 1000}), 3), invalid("3 copies"));
  EXPECT_THAT(refusal({DiskNode("a", 1), DiskNode("a", 1)}, 1), invalid("two nodes are called a"));
  EXPECT_THAT(refusal({DiskNode("a", 0)}, 1), invalid("node a: read_bytes_per_second is 0"));
  EXPECT_THAT(refusal(DiskNodes(std::vector<double>(65, 1)), 1), invalid("65 nodes"));
  Manifest dense;
  EXPECT_THAT(ProposeFaster(dense, DiskNodes({1}), {}).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no experts")));
}

}  // namespace
}  // namespace shoal

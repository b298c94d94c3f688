// Who gives what to whom where machines join or leave, counted by hand.
#include "coordinator/pool/kept_shares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Ranges = std::vector<ItemRange>;

SharingNode Old(double rate, const Ranges& computes, const Ranges& copies = {}) {
  SharingNode node{rate, false, false, computes, computes};
  node.stores.insert(node.stores.end(), copies.begin(), copies.end());
  return node;
}
SharingNode New(double rate) { return {rate, true, false, {}, {}}; }

int64_t Count(const Ranges& ranges) {
  int64_t count = 0;
  for (const ItemRange& range : ranges) {
    count += range.size();
  }
  return count;
}

TEST(KeptSharesTest, OneMoreThanNEqualNodesFetchesAnNPlusFirst) {
  for (int64_t n = 1; n <= 4; ++n) {
    constexpr int64_t kTotal = 60;
    std::vector<SharingNode> nodes;
    for (int64_t i = 0; i < n; ++i) {
      nodes.push_back(Old(7, {{i * kTotal / n, (i + 1) * kTotal / n}}));
    }
    nodes.push_back(New(7));
    const KeptShares shares = ShareKeeping(kTotal, nodes, 1);
    for (const KeptShare& node : shares.nodes) {
      EXPECT_EQ(Count(node.computes), kTotal / (n + 1)) << n << " nodes";
    }
    // Neighbours give at the ends that meet.
    EXPECT_EQ(static_cast<int64_t>(shares.nodes.back().computes.size()), (n + 1) / 2);
    EXPECT_THAT(shares.nodes.back().copies, IsEmpty());
    EXPECT_THAT(shares.lost, IsEmpty());
  }
}

TEST(KeptSharesTest, WhatIsGivenStaysAsACopy) {
  const std::vector<SharingNode> nodes = {Old(1, {{0, 4}}), Old(1, {{4, 8}}), New(1)};
  // 3, 3 and 2 of 8.
  const KeptShares shares = ShareKeeping(8, nodes, 1);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{0, 3}));
  EXPECT_THAT(shares.nodes[0].copies, ElementsAre(ItemRange{3, 4}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{5, 8}));
  EXPECT_THAT(shares.nodes[1].copies, ElementsAre(ItemRange{4, 5}));
  EXPECT_THAT(shares.nodes[2].computes, ElementsAre(ItemRange{3, 5}));
  EXPECT_THAT(shares.stored_once, ElementsAre(ItemRange{0, 3}, ItemRange{5, 8}));
}

TEST(KeptSharesTest, UnequalNodesEndInProportion) {
  const std::vector<SharingNode> nodes = {Old(1, {{0, 20}}), Old(2, {{20, 60}}), New(3)};
  const KeptShares shares = ShareKeeping(60, nodes, 1);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{0, 10}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{40, 60}));
  EXPECT_THAT(shares.nodes[2].computes, ElementsAre(ItemRange{10, 40}));
}

TEST(KeptSharesTest, TwoNewNodesShareWhatIsGiven) {
  const std::vector<SharingNode> nodes = {Old(1, {{0, 12}}),
                                          Old(1, {{12, 24}}),
                                          Old(1, {{24, 36}}),
                                          Old(1, {{36, 48}}),
                                          New(1),
                                          New(1)};
  const KeptShares shares = ShareKeeping(48, nodes, 1);
  EXPECT_THAT(shares.nodes[4].computes, ElementsAre(ItemRange{8, 16}));
  EXPECT_THAT(shares.nodes[5].computes, ElementsAre(ItemRange{32, 40}));
}

TEST(KeptSharesTest, WhoHasLessThanItsShareKeepsWhatItHas) {
  // The first has 2 of 12 and cannot get more; the other 10 are shared by two.
  const std::vector<SharingNode> nodes = {Old(1, {{0, 2}}), Old(1, {{2, 12}}), New(1)};
  const KeptShares shares = ShareKeeping(12, nodes, 1);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{0, 2}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{2, 7}));
  EXPECT_THAT(shares.nodes[2].computes, ElementsAre(ItemRange{7, 12}));
}

TEST(KeptSharesTest, ARangeOfTheRightSizeGoesWhole) {
  // Both have 6 and give 2, at the ends that meet.
  const std::vector<SharingNode> nodes = {Old(1, {{0, 4}, {10, 12}}), Old(1, {{4, 10}}), New(1)};
  const KeptShares shares = ShareKeeping(12, nodes, 1);
  EXPECT_THAT(shares.nodes[2].computes, ElementsAre(ItemRange{2, 6}));
  // The second has less than its share; of 6 the first keeps 4, the new one gets 2.
  const std::vector<SharingNode> apart = {Old(1, {{0, 4}, {10, 12}}), Old(9, {{4, 10}}), New(0.5)};
  EXPECT_THAT(ShareKeeping(12, apart, 1).nodes[2].computes, ElementsAre(ItemRange{10, 12}));
}

TEST(KeptSharesTest, WhoStoresItTakesOverWhatIsGone) {
  // Of three in a ring with two copies the middle one is gone: all of it is with the first, which
  // gives a part of its own to the last, who stores that.
  const std::vector<SharingNode> nodes = {Old(1, {{0, 30}}, {{30, 60}}),
                                          Old(1, {{60, 90}}, {{0, 30}})};
  const KeptShares shares = ShareKeeping(90, nodes, 2);
  EXPECT_EQ(Count(shares.nodes[0].computes), 45);
  EXPECT_EQ(Count(shares.nodes[1].computes), 45);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{15, 60}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{0, 15}, ItemRange{60, 90}));
  EXPECT_THAT(shares.lost, IsEmpty());
  EXPECT_THAT(shares.stored_once, ElementsAre(ItemRange{30, 90}));
}

TEST(KeptSharesTest, SeveralHoldersTakeOneRangeEach) {
  const std::vector<SharingNode> nodes = {Old(1, {{8, 12}}, {{4, 8}}), Old(1, {{0, 4}}, {{4, 8}})};
  const KeptShares shares = ShareKeeping(12, nodes, 1);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{6, 12}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{0, 6}));
}

TEST(KeptSharesTest, WhatNobodyStoresIsForNewNodesOrLost) {
  const std::vector<SharingNode> nodes = {Old(1, {{0, 6}}), New(1)};
  const KeptShares shares = ShareKeeping(12, nodes, 2);
  EXPECT_THAT(shares.nodes[0].computes, ElementsAre(ItemRange{0, 6}));
  EXPECT_THAT(shares.nodes[1].computes, ElementsAre(ItemRange{6, 12}));
  // A second copy of the first's; of its own there is no other to make one.
  EXPECT_THAT(shares.nodes[1].copies, ElementsAre(ItemRange{0, 6}));
  EXPECT_THAT(shares.stored_once, ElementsAre(ItemRange{6, 12}));
  EXPECT_THAT(ShareKeeping(12, std::span(nodes).first(1), 1).lost, ElementsAre(ItemRange{6, 12}));
}

TEST(KeptSharesTest, ANewNodeReplacesOneOfAPoolWithTwoCopies) {
  // As above, and a new machine: it gets a third from the ends that meet and a second copy of what
  // has one.
  const std::vector<SharingNode> nodes = {Old(1, {{0, 30}}, {{30, 60}}),
                                          Old(1, {{60, 90}}, {{0, 30}}), New(1)};
  const KeptShares shares = ShareKeeping(90, nodes, 2);
  for (const KeptShare& node : shares.nodes) {
    EXPECT_EQ(Count(node.computes), 30);
  }
  EXPECT_THAT(shares.nodes[2].computes, ElementsAre(ItemRange{0, 30}));
  EXPECT_THAT(shares.nodes[2].copies, ElementsAre(ItemRange{30, 90}));
  EXPECT_THAT(shares.stored_once, IsEmpty());
}

// Whatever the pool: everything is computed once, by who stores it; nothing that was stored is
// forgotten; nobody who is old stores more than it did.
TEST(KeptSharesTest, RulesHoldForRandomPools) {
  std::mt19937 random(7);
  const auto draw = [&random](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const int64_t total = draw(1, 40);
    const int64_t num_old = draw(1, 5);
    const int64_t num_new = draw(0, 3);
    std::vector<SharingNode> nodes(static_cast<size_t>(num_old));
    for (int64_t i = 0; i < total; ++i) {
      // A node that is not there is gone.
      const auto owner = static_cast<size_t>(draw(0, num_old - (round % 2)));
      const auto copy = static_cast<size_t>(draw(0, 2 * num_old));
      if (owner < nodes.size()) {
        nodes[owner].computes.push_back({i, i + 1});
        nodes[owner].stores.push_back({i, i + 1});
      }
      if (copy < nodes.size() && copy != owner) {
        nodes[copy].stores.push_back({i, i + 1});
      }
    }
    for (int64_t n = 0; n < num_new; ++n) {
      nodes.push_back(New(1));
    }
    for (SharingNode& node : nodes) {
      node.rate = static_cast<double>(draw(1, 9));
    }
    const KeptShares shares = ShareKeeping(total, nodes, draw(1, 2));
    ASSERT_EQ(shares.nodes.size(), nodes.size());
    const auto has = [](const Ranges& ranges, int64_t i) {
      return std::any_of(ranges.begin(), ranges.end(),
                         [i](const ItemRange& range) { return range.begin <= i && i < range.end; });
    };
    for (int64_t i = 0; i < total; ++i) {
      int computed = has(shares.lost, i) ? 1 : 0;
      int stored = 0;
      for (size_t n = 0; n < nodes.size(); ++n) {
        const KeptShare& share = shares.nodes[n];
        const bool stores = has(share.computes, i) || has(share.copies, i);
        computed += has(share.computes, i) ? 1 : 0;
        stored += stores ? 1 : 0;
        EXPECT_FALSE(has(share.computes, i) && has(share.copies, i));
        EXPECT_TRUE(nodes[n].is_new || stores == has(nodes[n].stores, i));
      }
      EXPECT_EQ(computed, 1) << "item " << i << " of round " << round;
      EXPECT_EQ(has(shares.stored_once, i), stored == 1);
      EXPECT_TRUE(!has(shares.lost, i) || num_new == 0);
    }
    // The shares of nodes that give or are new are within one of each other, for their rates.
    for (size_t a = 0; a < nodes.size(); ++a) {
      const bool gave = Count(shares.nodes[a].computes) > 1 && num_new > 0;
      for (size_t b = 0; gave && b < nodes.size(); ++b) {
        if (nodes[b].is_new) {
          EXPECT_GE(static_cast<double>(Count(shares.nodes[b].computes) + 2) / nodes[b].rate,
                    static_cast<double>(Count(shares.nodes[a].computes) - 2) / nodes[a].rate)
              << "round " << round;
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal

// What the others of a pool compute while some are gone. Shares by arithmetic: all finish together,
// as far as whole units and the copies allow.
#include "coordinator/pool/load_balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;

constexpr ExpertRange kAll{0, 64};
constexpr ExpertSlice kWhole{{0, 24}, kAll};

// Nodes with these numbers of units in a chain: each range is stored by its node and the one before.
std::vector<Cell> Chain(const std::vector<int64_t>& units) {
  std::vector<Cell> cells;
  int64_t begin = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    cells.push_back(
        {{{begin, begin + units[i]}, kAll}, {i, (i + units.size() - 1) % units.size()}});
    begin += units[i];
  }
  return cells;
}

// What each holder computes, in units times experts; every cell is covered by its parts once.
std::vector<int64_t> Loads(const std::vector<Cell>& cells, const std::vector<Cell>& parts,
                           size_t num_holders) {
  std::vector<int64_t> loads(num_holders);
  for (const Cell& part : parts) {
    loads[part.holders.front()] += part.slice.units.size() * part.slice.experts.size();
  }
  for (const Cell& cell : cells) {
    std::vector<ExpertSlice> inside;
    int64_t size = 0;
    for (const Cell& part : parts) {
      if (const ExpertSlice common = Intersect(part.slice, cell.slice); !common.empty()) {
        EXPECT_EQ(common, part.slice);
        EXPECT_THAT(part.holders, ::testing::UnorderedElementsAreArray(cell.holders));
        inside.push_back(common);
        size += common.units.size() * common.experts.size();
      }
    }
    EXPECT_TRUE(Uncovered(cell.slice, inside).empty());
    EXPECT_EQ(size, cell.slice.units.size() * cell.slice.experts.size());
  }
  return loads;
}

// 24 units on 4 equal nodes, one gone: 8 each. Where it is 1, its 6 are 0's, which hands 4 of its own
// on to 3, which hands 2 of its own on to 2.
TEST(BalanceLoadTest, TheRestOfAChainOfEqualsSharesEvenly) {
  const std::vector<Cell> cells = Chain({6, 6, 6, 6});
  for (size_t gone = 0; gone < 4; ++gone) {
    std::vector<bool> asked(4, true);
    asked[gone] = false;
    const std::vector<Cell> parts = BalanceLoad(kWhole, cells, asked);
    std::vector<int64_t> even(4, 8 * 64);
    even[gone] = 0;
    EXPECT_EQ(Loads(cells, parts, 4), even) << gone;
  }
}

TEST(BalanceLoadTest, PartsAreContiguousAndEachHolderHasOneOfACell) {
  const std::vector<Cell> parts =
      BalanceLoad(kWhole, Chain({12, 12}), std::vector<bool>{true, false});
  EXPECT_THAT(parts, ElementsAre(Cell{{{0, 12}, kAll}, {0, 1}}, Cell{{{12, 24}, kAll}, {0, 1}}));
  // Three, the middle one gone: 0 computes its range but 6, and the lost one's; 2 takes those 6.
  EXPECT_THAT(BalanceLoad(kWhole, Chain({8, 8, 8}), std::vector<bool>{true, false, true}),
              ElementsAre(Cell{{{0, 4}, kAll}, {0, 2}}, Cell{{{4, 8}, kAll}, {2, 0}},
                          Cell{{{8, 16}, kAll}, {0, 1}}, Cell{{{16, 24}, kAll}, {2, 1}}));
}

// 4, 8 and 12 of 24 units say that the speeds are as 1, 2 and 3. Without the last: 8 and 16, which
// the copies allow (0 has that of 1's range, 1 that of 2's).
TEST(BalanceLoadTest, SharesAreInProportionToSpeeds) {
  const std::vector<Cell> cells = Chain({4, 8, 12});
  const std::vector<Cell> parts = BalanceLoad(kWhole, cells, std::vector<bool>{true, true, false});
  EXPECT_THAT(Loads(cells, parts, 3), ElementsAre(8 * 64, 16 * 64, 0));
}

// The copy is with 0 alone, which cannot hand on its own range: nobody else has it.
TEST(BalanceLoadTest, CopiesThatAreNotThereLimitIt) {
  const std::vector<Cell> cells = {
      {{{0, 8}, kAll}, {0}}, {{{8, 16}, kAll}, {1, 0}}, {{{16, 24}, kAll}, {2}}};
  const std::vector<Cell> parts = BalanceLoad(kWhole, cells, std::vector<bool>{true, false, true});
  EXPECT_THAT(Loads(cells, parts, 3), ElementsAre(16 * 64, 0, 8 * 64));
}

TEST(BalanceLoadTest, WhatNobodyWhoIsAskedHoldsStaysAsItIs) {
  const std::vector<Cell> cells = {
      {{{0, 8}, kAll}, {0}}, {{{8, 24}, kAll}, {1, 2}}, {{{0, 24}, {64, 65}}, {}}};
  EXPECT_EQ(BalanceLoad(kWhole, cells, std::vector<bool>{true, false, false}), cells);
}

// 64 experts dealt out whole to three nodes in a chain: one is gone, and 32 are left to each.
TEST(BalanceLoadTest, WholeExpertsAreDealtOutWhole) {
  const std::vector<Cell> cells = {
      {{{0, 24}, {0, 20}}, {0, 2}}, {{{0, 24}, {20, 44}}, {1, 0}}, {{{0, 24}, {44, 64}}, {2, 1}}};
  const std::vector<Cell> parts = BalanceLoad(kWhole, cells, std::vector<bool>{true, false, true});
  EXPECT_THAT(Loads(cells, parts, 3), ElementsAre(32 * 24, 0, 32 * 24));
  for (const Cell& part : parts) {
    EXPECT_EQ(part.slice.units, kWhole.units);
  }
}

// Somebody who has everything, like a coordinator, takes its part of it.
TEST(BalanceLoadTest, AHolderOfEverythingTakesItsShare) {
  const std::vector<Cell> cells = {
      {{{0, 8}, kAll}, {0, 2}}, {{{8, 16}, kAll}, {1, 0, 2}}, {{{16, 24}, kAll}, {2}}};
  const std::vector<Cell> parts = BalanceLoad(kWhole, cells, std::vector<bool>{true, false, true});
  EXPECT_THAT(Loads(cells, parts, 3), ElementsAre(12 * 64, 0, 12 * 64));
}

// Who is given nothing in health counts as the slowest: as fast as 0, a third of 1.
TEST(BalanceLoadTest, AHolderOfCopiesAloneCountsAsTheSlowest) {
  const std::vector<Cell> cells = {{{{0, 6}, kAll}, {0, 2}}, {{{6, 24}, kAll}, {1, 0, 2}}};
  const std::vector<Cell> parts = BalanceLoad(kWhole, cells, std::vector<bool>{true, false, true});
  EXPECT_THAT(Loads(cells, parts, 3), ElementsAre(12 * 64, 0, 12 * 64));
}

TEST(WorkAfterDeathTest, TheDeadKeepsWhatNobodyElseHolds) {
  const std::vector<Cell> cells = {{{{0, 8}, kAll}, {0, 1}}, {{{8, 24}, kAll}, {0}}};
  const auto work = WorkAfterDeath(kWhole, cells, 2, 0);
  EXPECT_THAT(work[0], ElementsAre(ExpertSlice{{8, 24}, kAll}));
  EXPECT_THAT(work[1], ElementsAre(ExpertSlice{{0, 8}, kAll}));
}

}  // namespace
}  // namespace shoal

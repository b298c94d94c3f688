// How the experts are dealt out among nodes that hold slices of them.
#include "coordinator/pool/cells.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr ExpertRange kAll{0, 64};
constexpr ExpertSlice kWhole{{0, 8}, kAll};

TEST(CellsTest, DisjointNodesEachComputeWhatTheyHold) {
  const std::vector<Holdings> nodes = {{{{{0, 3}, kAll}}}, {{{{3, 8}, kAll}}}};
  EXPECT_THAT(MakeCells(kWhole, nodes),
              ElementsAre(Cell{{{0, 3}, kAll}, {0}}, Cell{{{3, 8}, kAll}, {1}}));
}

TEST(CellsTest, WhatNobodyHoldsIsACellWithoutHolders) {
  const std::vector<Holdings> nodes = {{{{{0, 3}, kAll}}}, {{{{4, 8}, kAll}}}};
  EXPECT_THAT(MakeCells(kWhole, nodes),
              UnorderedElementsAre(Cell{{{0, 3}, kAll}, {0}}, Cell{{{3, 4}, kAll}, {}},
                                   Cell{{{4, 8}, kAll}, {1}}));
}

TEST(CellsTest, ThePlanSaysWhoComputesAndTheCopyComesSecond) {
  // Three nodes in a chain: each also stores what the one before it computes.
  const ExpertSlice a{{0, 2}, kAll};
  const ExpertSlice b{{2, 5}, kAll};
  const ExpertSlice c{{5, 8}, kAll};
  const std::vector<Holdings> nodes = {{{a, c}, {a}}, {{b, a}, {b}}, {{c, b}, {c}}};
  EXPECT_THAT(MakeCells(kWhole, nodes),
              ElementsAre(Cell{a, {0, 1}}, Cell{b, {1, 2}}, Cell{c, {2, 0}}));
}

TEST(CellsTest, NodesThatHoldTheSameShareItEvenly) {
  const std::vector<Holdings> nodes = {{{kWhole}}, {{kWhole}}, {{kWhole}}};
  EXPECT_THAT(MakeCells(kWhole, nodes),
              ElementsAre(Cell{{{0, 2}, kAll}, {0, 1, 2}}, Cell{{{2, 5}, kAll}, {1, 2, 0}},
                          Cell{{{5, 8}, kAll}, {2, 0, 1}}));
}

TEST(CellsTest, MoreNodesThanUnitsLeaveSomeWithoutWork) {
  const ExpertSlice one_unit{{0, 1}, kAll};
  const std::vector<Holdings> nodes = {{{one_unit}}, {{one_unit}}};
  EXPECT_THAT(MakeCells(one_unit, nodes), ElementsAre(Cell{one_unit, {1, 0}}));
}

TEST(CellsTest, WholeExpertsAreCellsOfAllUnits) {
  const std::vector<Holdings> nodes = {{{{{0, 8}, {0, 20}}}}, {{{{0, 8}, {20, 64}}}}};
  EXPECT_THAT(MakeCells(kWhole, nodes),
              UnorderedElementsAre(Cell{{{0, 8}, {0, 20}}, {0}}, Cell{{{0, 8}, {20, 64}}, {1}}));
}

TEST(CellsTest, CellsOfCrossingSlicesCoverEverythingOnce) {
  const std::vector<Holdings> nodes = {
      {{{{0, 5}, {0, 40}}}}, {{{{3, 8}, {10, 64}}}}, {{{{0, 8}, {40, 64}}, {{5, 8}, {0, 10}}}}};
  std::vector<int> count(8 * 64);
  for (const Cell& cell : MakeCells(kWhole, nodes)) {
    EXPECT_FALSE(cell.holders.empty());
    for (const size_t holder : cell.holders) {
      EXPECT_TRUE(Uncovered(cell.slice, nodes[holder].slices).empty());
    }
    for (int64_t expert = cell.slice.experts.begin; expert < cell.slice.experts.end; ++expert) {
      for (int64_t unit = cell.slice.units.begin; unit < cell.slice.units.end; ++unit) {
        ++count[static_cast<size_t>(expert * 8 + unit)];
      }
    }
  }
  EXPECT_THAT(count, ::testing::Each(1));
}

}  // namespace
}  // namespace shoal

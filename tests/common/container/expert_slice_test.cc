// Rectangles of units and experts: what two have in common, what is left, what is refused.
#include "common/container/expert_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr ExpertSlice kWhole{{0, 8}, {0, 64}};

// How often each (unit, expert) of kWhole is in one of `slices`.
std::vector<int> Count(const std::vector<ExpertSlice>& slices) {
  std::vector<int> count(8 * 64);
  for (const ExpertSlice& slice : slices) {
    for (int64_t expert = slice.experts.begin; expert < slice.experts.end; ++expert) {
      for (int64_t unit = slice.units.begin; unit < slice.units.end; ++unit) {
        ++count[static_cast<size_t>(expert * 8 + unit)];
      }
    }
  }
  return count;
}

TEST(ExpertSliceTest, IntersectsInBothDirections) {
  EXPECT_EQ(Intersect({{0, 4}, {10, 20}}, {{3, 8}, {0, 11}}), (ExpertSlice{{3, 4}, {10, 11}}));
  EXPECT_TRUE(Intersect({{0, 4}, {0, 64}}, {{4, 8}, {0, 64}}).empty());
  EXPECT_EQ(Intersect({{0, 4}, {0, 64}}, {{4, 8}, {0, 64}}), ExpertSlice());
}

TEST(ExpertSliceTest, WhatIsUncoveredAndWhatCoversItMakeTheWholeOnce) {
  const std::vector<std::vector<ExpertSlice>> cases = {
      {},
      {kWhole},
      {{{0, 3}, {0, 64}}, {{3, 7}, {0, 64}}},
      {{{2, 5}, {10, 20}}},
      {{{0, 8}, {0, 1}}, {{1, 2}, {5, 9}}, {{7, 8}, {63, 64}}, {{3, 6}, {8, 33}}},
  };
  for (std::vector<ExpertSlice> slices : cases) {
    const std::vector<ExpertSlice> missing = Uncovered(kWhole, slices);
    slices.insert(slices.end(), missing.begin(), missing.end());
    EXPECT_THAT(Count(slices), ::testing::Each(1));
  }
}

TEST(ExpertSliceTest, CoverageMayOverlap) {
  EXPECT_TRUE(
      Uncovered(kWhole, std::vector<ExpertSlice>{{{0, 5}, {0, 64}}, {{3, 8}, {0, 64}}}).empty());
}

TEST(ExpertSliceTest, RefusesWhatIsOutsideEmptyOrTwiceByName) {
  const auto refuses = [](const std::vector<ExpertSlice>& slices, const char* message) {
    EXPECT_THAT(CheckSlices(kWhole, slices, "node a"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("node a: "), HasSubstr(message))));
  };
  refuses({{{0, 9}, {0, 64}}}, "units [0, 9) of experts [0, 64) are not a part of units 0-7");
  refuses({{{-1, 2}, {0, 64}}}, "units [-1, 2)");
  refuses({{{0, 8}, {60, 65}}}, "experts [60, 65)");
  refuses({{{3, 3}, {0, 64}}}, "units [3, 3)");
  refuses({{{5, 2}, {0, 64}}}, "units [5, 2)");
  refuses({{{0, 4}, {0, 64}}, {{3, 5}, {7, 9}}}, "units 3-3 of experts 7-8 are given twice");
  SHOAL_EXPECT_OK(CheckSlices(
      kWhole, std::vector<ExpertSlice>{{{0, 4}, {0, 64}}, {{4, 8}, {0, 64}}}, "node a"));
}

}  // namespace
}  // namespace shoal

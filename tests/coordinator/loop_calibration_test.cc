#include "coordinator/model/loop_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "coordinator/model/trunk_loops.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::TempDir;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// On one thread a loop takes a nanosecond for four multiply-adds; on all a share of that and `wake`.
TimeLoop LoopsCosting(double share, absl::Duration wake) {
  return [=](int64_t cost, bool parallel) {
    const absl::Duration alone = absl::Nanoseconds(static_cast<double>(cost) / 4);
    return parallel ? wake + share * alone : alone;
  };
}

TEST(PickParallelCostTest, IsWhereWakingThreadsPaysOff) {
  // 10 us + cost / 8 ns < 0.95 * cost / 4 ns from 88,889 multiply-adds on: the next is 2^17.
  EXPECT_EQ(PickParallelCost(LoopsCosting(0.5, absl::Microseconds(10))), 1 << 17);
  EXPECT_EQ(PickParallelCost(LoopsCosting(0.5, absl::Nanoseconds(1))), 1 << 15);
}

TEST(PickParallelCostTest, IsAboveAllThatWasTriedWhereItNeverPaysOff) {
  EXPECT_EQ(PickParallelCost(LoopsCosting(1.0, absl::Microseconds(1))), 1 << 22);
}

TEST(PickParallelCostTest, OneLuckyLoopBelowDoesNotCount) {
  const TimeLoop time_loop = [](int64_t cost, bool parallel) {
    const bool lucky = cost == 1 << 15 || cost > 1 << 18;
    return absl::Nanoseconds(parallel && lucky ? 1 : 100);
  };
  EXPECT_EQ(PickParallelCost(time_loop), 1 << 19);
}

TEST(CalibrateLoopsTest, MeasuresOnceAndKeepsIt) {
  const TempDir dir;
  const ProfileStore store(dir.path());
  ThreadPool pool(2);
  const CalibratedLoops measured = CalibrateLoops(store, pool, Clock::Real());
  EXPECT_EQ(measured.origin, "measured");
  EXPECT_GE(measured.least_parallel_cost, 1 << 15);
  const CalibratedLoops kept = CalibrateLoops(store, pool, Clock::Real());
  EXPECT_THAT(kept.origin, StartsWith("kept in " + dir.path()));
  EXPECT_EQ(kept.least_parallel_cost, measured.least_parallel_cost);
  ThreadPool one(1);
  EXPECT_EQ(CalibrateLoops(store, one, Clock::Real()).least_parallel_cost, kUsualParallelCost);
}

TEST(CalibrateLoopsTest, ADamagedFileIsMeasuredAnew) {
  const TempDir dir;
  const ProfileStore store(dir.path());
  ThreadPool pool(2);
  SHOAL_ASSERT_OK(
      store.Save("trunk-loops", MachineConditions(2), {{"least_parallel_multiply_adds", -1}}));
  const CalibratedLoops anew = CalibrateLoops(store, pool, Clock::Real());
  EXPECT_THAT(anew.origin, HasSubstr("least_parallel_multiply_adds is -1"));
  EXPECT_GE(anew.least_parallel_cost, 1 << 15);
}

TEST(TrunkLoopsTest, CoverEveryItemOnceInOnePieceOrSeveral) {
  ThreadPool pool(3);
  for (const int64_t cost : {1, 1000}) {
    const TrunkLoops loops(pool, 5000);
    std::atomic<int> pieces{0};
    std::vector<std::atomic<int>> seen(37);
    loops.ForPieces(37, cost, [&](int64_t begin, int64_t end) {
      ++pieces;
      for (int64_t i = begin; i < end; ++i) {
        ++seen[static_cast<size_t>(i)];
      }
    });
    EXPECT_EQ(pieces, cost == 1 ? 1 : 12);
    for (const auto& times : seen) {
      EXPECT_EQ(times, 1);
    }
  }
}

}  // namespace
}  // namespace shoal

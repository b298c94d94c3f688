#include "common/sync/stealing_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace shoal {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> TakeAll(StealingRanges& ranges, int worker) {
  std::vector<int64_t> taken;
  for (int64_t task = ranges.Take(worker); task >= 0; task = ranges.Take(worker)) {
    taken.push_back(task);
  }
  return taken;
}

// Worker 1 of three has {3, 4, 5} of nine; then half of the fullest other, the first of equals, from its back: {2} of
// {0, 1, 2}... of which two of three are taken.
TEST(StealingRangesTest, AWorkerTakesItsOwnAndThenTheBackHalfOfTheFullest) {
  StealingRanges ranges(9, 3);
  EXPECT_THAT(TakeAll(ranges, 1), ElementsAre(3, 4, 5, 1, 2, 7, 8, 0, 6));
  EXPECT_TRUE(ranges.empty());
  EXPECT_EQ(ranges.Take(0), -1);
}

TEST(StealingRangesTest, OwnersGoOnFromTheFront) {
  StealingRanges ranges(8, 2);
  EXPECT_EQ(ranges.Take(0), 0);
  for (const int64_t task : {4, 5, 6, 7}) {
    EXPECT_EQ(ranges.Take(1), task);
  }
  EXPECT_EQ(ranges.Take(1), 2);  // of {1, 2, 3} the back half, {2, 3}
  EXPECT_EQ(ranges.Take(0), 1);
  EXPECT_EQ(ranges.Take(0), 3);  // stolen back
  EXPECT_FALSE(ranges.Take(1) >= 0);
  EXPECT_TRUE(ranges.empty());
}

TEST(StealingRangesTest, FewerTasksThanWorkersAndNone) {
  StealingRanges few(2, 5);
  EXPECT_EQ(TakeAll(few, 0).size(), 2U);
  StealingRanges none(0, 3);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.Take(2), -1);
}

TEST(StealingRangesTest, ThreadsTakeEveryTaskOnce) {
  for (int round = 0; round < 50; ++round) {
    constexpr int kWorkers = 4;
    StealingRanges ranges(1001, kWorkers);
    std::vector<std::atomic<int>> taken(1001);
    std::vector<std::thread> threads;
    for (int worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
        for (const int64_t task : TakeAll(ranges, worker)) {
          taken[static_cast<size_t>(task)]++;
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const auto& count : taken) {
      ASSERT_EQ(count.load(), 1);
    }
  }
}

}  // namespace
}  // namespace shoal

// From which amount of work on the trunk's loops are faster on all threads, found by trying.
#ifndef SHOAL_COORDINATOR_MODEL_LOOP_CALIBRATION_H_
#define SHOAL_COORDINATOR_MODEL_LOOP_CALIBRATION_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/time/time.h"
#include "common/io/profile_store.h"
#include "common/sync/clock.h"
#include "common/sync/thread_pool.h"

namespace shoal {

// How long one loop of `cost` multiply-adds takes, on all threads or on the calling one alone.
using TimeLoop = std::function<absl::Duration(int64_t cost, bool parallel)>;

// The least of the costs 2^15, 2^16, ... 2^21 multiply-adds whose median parallel loop of nine takes less than
// 19/20 of the median on one thread, as do all costs above it; 2^22 where none does.
int64_t PickParallelCost(const TimeLoop& time_loop);

// PickParallelCost with products of a small float32 matrix; kUsualParallelCost for a pool of one thread. Takes about
// 20 ms on one core and 200 KB.
int64_t MeasureParallelCost(ThreadPool& pool, const Clock& clock);

// What `store` has for this machine, these threads and this program, else MeasureParallelCost's, which it is then
// given to keep.
struct CalibratedLoops {
  int64_t least_parallel_cost = 0;
  std::string origin;  // for people, as CalibratedSplits'
};
CalibratedLoops CalibrateLoops(const ProfileStore& store, ThreadPool& pool, const Clock& clock);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_LOOP_CALIBRATION_H_

// The loops of the trunk over the thread pool: which are worth waking threads for, and in how many pieces.
#ifndef SHOAL_COORDINATOR_MODEL_TRUNK_LOOPS_H_
#define SHOAL_COORDINATOR_MODEL_TRUNK_LOOPS_H_

#include <cstdint>
#include <functional>

#include "common/sync/thread_pool.h"

namespace shoal {

// What holds where nothing was measured, in multiply-adds: about 20 microseconds of one core.
inline constexpr int64_t kUsualParallelCost = 200'000;

// Thread-safe. `pool` outlives it.
class TrunkLoops {
 public:
  // Loops of `least_parallel_cost` multiply-adds or more run on all threads.
  TrunkLoops(ThreadPool& pool, int64_t least_parallel_cost)
      : pool_(pool), least_parallel_cost_(least_parallel_cost) {}

  // Calls task(begin, end) over pieces of [0, count): in parallel where count * cost_per_item
  // (multiply-adds) is worth it, else as one piece on this thread. Never changes a result.
  void ForPieces(int64_t count, int64_t cost_per_item,
                 const std::function<void(int64_t begin, int64_t end)>& task) const;

  int64_t least_parallel_cost() const { return least_parallel_cost_; }

 private:
  ThreadPool& pool_;
  const int64_t least_parallel_cost_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_TRUNK_LOOPS_H_

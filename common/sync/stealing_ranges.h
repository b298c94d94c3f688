// The tasks of a loop, shared out among workers: work stealing over ranges (Blumofe and Leiserson, "Scheduling
// multithreaded computations by work stealing", 1999, for a loop whose tasks are known).
#ifndef SHOAL_COMMON_SYNC_STEALING_RANGES_H_
#define SHOAL_COMMON_SYNC_STEALING_RANGES_H_

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe, each worker index for one thread at a time.
class StealingRanges {
 public:
  // Tasks [0, num_tasks), a range of neighbours for each worker.
  StealingRanges(int64_t num_tasks, int num_workers);

  // The next task for the worker, each task once: the first of its own range, or of the half that it takes from the
  // fullest of the others. -1 where nothing is left to take.
  int64_t Take(int worker);
  // Whether every task has been taken.
  bool empty() const { return left_.load() <= 0; }

 private:
  // On a cache line of its own: most of the time only its worker looks at it.
  struct alignas(64) Range {
    Mutex mutex;
    int64_t begin ABSL_GUARDED_BY(mutex) = 0;
    int64_t end ABSL_GUARDED_BY(mutex) = 0;

    int64_t TakeFirst();
    int64_t size();
    // Cuts off the second half, at least one task where there is any; the part is [first, second).
    std::pair<int64_t, int64_t> CutHalf();
  };
  bool Steal(Range& own);

  std::vector<Range> ranges_;
  std::atomic<int64_t> left_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_STEALING_RANGES_H_

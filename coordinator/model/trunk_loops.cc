#include "coordinator/model/trunk_loops.h"

#include <algorithm>

namespace shoal {

void TrunkLoops::ForPieces(int64_t count, int64_t cost_per_item,
                           const std::function<void(int64_t begin, int64_t end)>& task) const {
  const int64_t threads = pool_.num_threads();
  if (threads == 1 || count * cost_per_item < least_parallel_cost_) {
    task(0, count);
    return;
  }
  // Four pieces a thread, so that a slow core does not hold up the others for long.
  const int64_t pieces = std::min(count, 4 * threads);
  pool_.ParallelFor(pieces, [&](int64_t piece, int) {
    task(count * piece / pieces, count * (piece + 1) / pieces);
  });
}

}  // namespace shoal

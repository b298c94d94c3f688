#include "coordinator/convert/parallel_status.h"

#include <vector>

#include "common/status/status_macros.h"

namespace shoal {

absl::Status ParallelForStatus(ThreadPool& pool, int64_t num_tasks,
                               const std::function<absl::Status(int64_t task, int worker)>& task) {
  std::vector<absl::Status> results(num_tasks);
  pool.ParallelFor(num_tasks, [&](int64_t i, int worker) { results[i] = task(i, worker); });
  for (absl::Status& result : results) {
    SHOAL_RETURN_IF_ERROR(std::move(result));
  }
  return absl::OkStatus();
}

}  // namespace shoal

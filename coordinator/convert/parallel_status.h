// ThreadPool::ParallelFor for tasks that can fail.
#ifndef SHOAL_COORDINATOR_CONVERT_PARALLEL_STATUS_H_
#define SHOAL_COORDINATOR_CONVERT_PARALLEL_STATUS_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "common/sync/thread_pool.h"

namespace shoal {

// Runs every task, also after one failed, and returns the error of the lowest index: the message
// does not depend on timing.
absl::Status ParallelForStatus(ThreadPool& pool, int64_t num_tasks,
                               const std::function<absl::Status(int64_t task, int worker)>& task);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_PARALLEL_STATUS_H_

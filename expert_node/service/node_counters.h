// What a node's service has done since its start.
#ifndef SHOAL_EXPERT_NODE_SERVICE_NODE_COUNTERS_H_
#define SHOAL_EXPERT_NODE_SERVICE_NODE_COUNTERS_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"

namespace shoal {

struct NodeCounts {
  uint64_t layers = 0;  // computed, failures included
  uint64_t failed_layers = 0;
  uint64_t rows = 0;
  absl::Duration queue_time;    // from a request's arrival to its work
  absl::Duration execute_time;  // of the work, the wait for the disk included
};

// Thread-safe.
class NodeCounters {
 public:
  void AddLayer(uint64_t rows, absl::Duration queue_time, absl::Duration execute_time, bool ok) {
    const MutexLock lock(&mutex_);
    ++counts_.layers;
    counts_.failed_layers += ok ? 0 : 1;
    counts_.rows += rows;
    counts_.queue_time += queue_time;
    counts_.execute_time += execute_time;
  }
  NodeCounts Counts() const {
    const MutexLock lock(&mutex_);
    return counts_;
  }

 private:
  mutable Mutex mutex_;
  NodeCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_NODE_COUNTERS_H_

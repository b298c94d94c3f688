// Brings the records that one batch needs into the cache and hands them out as they arrive.
#ifndef SHOAL_EXPERT_NODE_EXPERT_FETCH_H_
#define SHOAL_EXPERT_NODE_EXPERT_FETCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_cache.h"
#include "expert_node/expert_store.h"
#include "expert_node/io_threads.h"

namespace shoal {

// One batch's fetch; used by one thread. A record that was read stays pinned until its Ready is
// gone, and is then the cache's to replace.
class ExpertFetch {
 public:
  struct Ready {
    size_t index = 0;  // into the `experts` given to Start
    ExpertCache::Pin pin;
  };
  struct Counts {
    int64_t hits = 0;
    int64_t misses = 0;
    ReadCounts reads;
  };

  // All three outlive the fetch.
  ExpertFetch(ExpertCache& cache, ExpertStore& store, IoThreads& io);
  // Withdraws reads that have not begun, and waits for those that have.
  ~ExpertFetch();
  ExpertFetch(const ExpertFetch&) = delete;
  ExpertFetch& operator=(const ExpertFetch&) = delete;

  // Pins what is in the cache and begins to read the rest, in order. `stop` ends waits early.
  // Called once.
  void Start(int64_t layer, std::vector<int64_t> experts, std::stop_token stop);

  // What has arrived since the last call. Waits where nothing has; empty when everything has been
  // handed out. The caller works on what it gets and lets it go before it calls again: slots are
  // few. Errors: CANCELLED, and the first read's that failed.
  absl::StatusOr<std::vector<Ready>> Next();

  // So far.
  Counts counts();

 private:
  void FetchOne(size_t index);
  // After `stop` or an error: reads that have not begun are not worth beginning. Wakes who waits.
  void GiveUp();

  ExpertCache& cache_;
  ExpertStore& store_;
  IoThreads& io_;
  int64_t layer_ = 0;
  std::vector<int64_t> experts_;
  std::stop_token stop_;
  std::stop_source give_up_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<Ready> ready_ ABSL_GUARDED_BY(mutex_);
  size_t pending_ ABSL_GUARDED_BY(mutex_) = 0;  // submitted to io_, not finished
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Counts counts_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_FETCH_H_

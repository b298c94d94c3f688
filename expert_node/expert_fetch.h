// Brings the units that one batch needs into the cache and hands them out as they arrive.
#ifndef SHOAL_EXPERT_NODE_EXPERT_FETCH_H_
#define SHOAL_EXPERT_NODE_EXPERT_FETCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_cache.h"
#include "expert_node/expert_store.h"
#include "expert_node/io_threads.h"

namespace shoal {

// One batch's fetch; used by one thread. What was read stays pinned until its Ready is
// gone, and is then the cache's to replace.
class ExpertFetch {
 public:
  struct Ready {
    size_t index = 0;  // into the `parts` given to Start
    ExpertCache::Pin pin;
    std::span<const std::byte> units;  // that were asked for, in what is pinned
  };
  struct Counts {
    int64_t hits = 0;
    int64_t misses = 0;
    ReadCounts reads;
  };

  // One store a slice; slots of the cache are large enough for the records of each. All outlive the
  // fetch.
  using Stores = std::span<const std::unique_ptr<ExpertStore>>;
  ExpertFetch(ExpertCache& cache, Stores stores, IoThreads& io);
  // Withdraws reads that have not begun, and waits for those that have.
  ~ExpertFetch();
  ExpertFetch(const ExpertFetch&) = delete;
  ExpertFetch& operator=(const ExpertFetch&) = delete;

  // Pins what is in the cache and begins to read the rest, in order. `stop` ends waits early.
  // Called once.
  void Start(std::vector<RecordPart> parts, std::stop_token stop);

  // What has arrived since the last call. Waits where nothing has; empty when everything has been
  // handed out. The caller works on what it gets and lets it go before it calls again: slots are
  // few. Errors: CANCELLED, and the first read's that failed.
  absl::StatusOr<std::vector<Ready>> Next();

  // So far.
  Counts counts();

 private:
  void FetchOne(size_t index);
  Ready MakeReady(size_t index, ExpertCache::Pin pin) const;
  void Fail(absl::Status status, const ReadCounts& reads);
  // The last of FetchOne, whichever way it went.
  void Finish(const ReadCounts& reads) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After `stop` or an error: reads that have not begun are not worth beginning. Wakes who waits.
  void GiveUp();

  ExpertCache& cache_;
  const Stores stores_;
  IoThreads& io_;
  std::vector<RecordPart> parts_;
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

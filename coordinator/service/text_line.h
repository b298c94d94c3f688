// Texts that wait to be turned into tokens, or back.
#ifndef SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_
#define SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_

#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/sync/mutex.h"
#include "expert_node/io_threads.h"

namespace shoal {

// Thread-safe. One thread of its own, so that a long text holds up neither the threads of gRPC nor
// answers that are computed; texts that wait for it are bounded in number and bytes.
class TextLine {
 public:
  TextLine(int64_t max_texts, int64_t max_bytes)
      : max_texts_(max_texts), max_bytes_(max_bytes), thread_(1) {}

  // Does `job`, which reads `bytes` of text, later. `owner` is a name for Withdraw. RESOURCE_EXHAUSTED
  // (TEXTS_WAITING, with a RetryInfo) where too much waits; a text alone is always taken.
  absl::Status Submit(const void* owner, int64_t bytes, std::function<void()> job);
  // True where the owner's job has not begun, and now will not.
  bool Withdraw(const void* owner) { return thread_.Withdraw(owner) > 0; }

 private:
  const int64_t max_texts_;
  const int64_t max_bytes_;
  Mutex mutex_;
  // Of texts that wait or are read.
  int64_t texts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  IoThreads thread_;  // last: its jobs use what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_

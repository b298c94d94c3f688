// Texts that wait to be turned into tokens, or back.
#ifndef SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_
#define SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/service/error_details.h"
#include "expert_node/io_threads.h"

namespace shoal {

// Thread-safe. One thread of its own, so that a long text holds up neither the threads of gRPC nor
// answers that are computed; a bounded number of texts waits for it.
class TextLine {
 public:
  explicit TextLine(int64_t max_waiting) : max_waiting_(max_waiting), thread_(1) {}

  // Does `job` later. `owner` is a name for Withdraw. RESOURCE_EXHAUSTED (TEXTS_WAITING, with a
  // RetryInfo) where too many wait.
  absl::Status Submit(const void* owner, std::function<void()> job) {
    if (waiting_.fetch_add(1) >= max_waiting_) {
      waiting_.fetch_sub(1);
      return WithRetry(ClientError(absl::StatusCode::kResourceExhausted, "TEXTS_WAITING",
                                   absl::StrCat(max_waiting_, " texts wait to be read, the most ",
                                                "that may; try again")),
                       absl::Seconds(1));
    }
    thread_.Submit(owner, [this, job = std::move(job)] {
      waiting_.fetch_sub(1);
      job();
    });
    return absl::OkStatus();
  }

  // True where the owner's job has not begun, and now will not.
  bool Withdraw(const void* owner) {
    const auto dropped = static_cast<int64_t>(thread_.Withdraw(owner));
    waiting_.fetch_sub(dropped);
    return dropped > 0;
  }

 private:
  const int64_t max_waiting_;
  std::atomic<int64_t> waiting_{0};
  IoThreads thread_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_TEXT_LINE_H_

#include "coordinator/service/text_line.h"

#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "coordinator/service/error_details.h"

namespace shoal {

absl::Status TextLine::Submit(const void* owner, int64_t bytes, std::function<void()> job) {
  {
    MutexLock lock(&mutex_);
    if (texts_ > 0 && (texts_ >= max_texts_ || bytes_ + bytes > max_bytes_)) {
      return WithRetry(ClientError(absl::StatusCode::kResourceExhausted, "TEXTS_WAITING",
                                   "as many texts wait to be read as may; try again"),
                       absl::Seconds(1));
    }
    ++texts_;
    bytes_ += bytes;
  }
  // Goes with the job, whether that was done or withdrawn.
  const std::shared_ptr<void> place(nullptr, [this, bytes](void*) {
    MutexLock lock(&mutex_);
    --texts_;
    bytes_ -= bytes;
  });
  thread_.Submit(owner, [place, job = std::move(job)] { job(); });
  return absl::OkStatus();
}

}  // namespace shoal

#include "expert_node/drill/slowed_backend.h"

#include <condition_variable>
#include <mutex>

namespace shoal {

absl::Status SlowedBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                    std::stop_token stop, std::span<int64_t> out) {
  if (delay_ > absl::ZeroDuration()) {
    std::mutex mutex;
    std::condition_variable_any nothing;
    std::unique_lock<std::mutex> lock(mutex);
    // Ends early only where `stop` is requested, which the backend sees too.
    nothing.wait_for(lock, stop, absl::ToChronoNanoseconds(delay_), [] { return false; });
  }
  const absl::Time start = clock_.Now();
  absl::Status status = backend_.Execute(batch, slices, stop, out);
  slowdown_.Wait(clock_.Now() - start, stop);
  return status;
}

}  // namespace shoal

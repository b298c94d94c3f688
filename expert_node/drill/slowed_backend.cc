#include "expert_node/slowed_backend.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace shoal {

absl::Status SlowedBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                    std::stop_token stop, std::span<int64_t> out) {
  std::mutex mutex;
  std::condition_variable_any nothing;
  std::unique_lock<std::mutex> lock(mutex);
  // Ends early only where `stop` is requested, which the backend sees too.
  nothing.wait_for(lock, stop, absl::ToChronoNanoseconds(delay_), [] { return false; });
  return backend_.Execute(batch, slices, std::move(stop), out);
}

}  // namespace shoal

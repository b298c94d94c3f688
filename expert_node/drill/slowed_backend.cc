#include "expert_node/drill/slowed_backend.h"

#include "common/status/status_macros.h"
#include "common/sync/stop_wait.h"

namespace shoal {

absl::Status SlowedBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                    std::stop_token stop, std::span<int64_t> out) {
  if (delay_ > absl::ZeroDuration()) {
    SHOAL_RETURN_IF_ERROR(WaitUnlessStopped(delay_, stop));
  }
  const absl::Time start = clock_.Now();
  absl::Status status = backend_.Execute(batch, slices, stop, out);
  slowdown_.Wait(clock_.Now() - start, stop);
  return status;
}

}  // namespace shoal

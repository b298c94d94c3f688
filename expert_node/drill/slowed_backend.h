// A backend that is slower than it is: how a pool is tried with a slow node.
#ifndef SHOAL_EXPERT_NODE_DRILL_SLOWED_BACKEND_H_
#define SHOAL_EXPERT_NODE_DRILL_SLOWED_BACKEND_H_

#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "expert_node/drill/slowdown.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// Thread-safe where the other is.
class SlowedBackend final : public ExpertBackend {
 public:
  // Every Execute waits `delay` before it calls `backend`, and as long as `slowdown` says after it.
  // All but `delay` outlive this.
  SlowedBackend(ExpertBackend& backend, absl::Duration delay, Slowdown& slowdown,
                const Clock& clock)
      : backend_(backend), delay_(delay), slowdown_(slowdown), clock_(clock) {}

  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override;
  std::vector<ExpertLayerStats> Stats() const override { return backend_.Stats(); }

 private:
  ExpertBackend& backend_;
  const absl::Duration delay_;
  Slowdown& slowdown_;
  const Clock& clock_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_DRILL_SLOWED_BACKEND_H_

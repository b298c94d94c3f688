// A backend that is slower than it is: how a pool is tried with a slow node.
#ifndef SHOAL_EXPERT_NODE_SLOWED_BACKEND_H_
#define SHOAL_EXPERT_NODE_SLOWED_BACKEND_H_

#include <span>
#include <stop_token>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// Thread-safe where the other is.
class SlowedBackend final : public ExpertBackend {
 public:
  // Every Execute waits `delay` before it calls `backend`, which outlives this.
  SlowedBackend(ExpertBackend& backend, absl::Duration delay) : backend_(backend), delay_(delay) {}

  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override;
  std::vector<ExpertLayerStats> Stats() const override { return backend_.Stats(); }

 private:
  ExpertBackend& backend_;
  const absl::Duration delay_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SLOWED_BACKEND_H_

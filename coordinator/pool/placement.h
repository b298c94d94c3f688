// Who computes and stores what, in proportion to what each machine was measured to do. Pure
// arithmetic: nothing is asked, opened or copied.
#ifndef SHOAL_COORDINATOR_POOL_PLACEMENT_H_
#define SHOAL_COORDINATOR_POOL_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "coordinator/pool/placement_axis.h"
#include "coordinator/pool/pool_forecast.h"
#include "coordinator/pool/pool_plan.h"
#include "coordinator/pool/pool_prediction.h"

namespace shoal {

// The forecasts of a plan take time with the square of the number of nodes and more.
inline constexpr size_t kMaxPlannedNodes = 64;

struct PlacementOptions {
  int64_t copies = 1;  // 2: every range is stored by two nodes
  ForecastOptions forecast = {};
};

// INVALID_ARGUMENT: no nodes or more than kMaxPlannedNodes, a rate that is not positive, a name given
// twice. FAILED_PRECONDITION: the model has no experts.
absl::Status CheckRates(const Manifest& manifest, std::span<const NodeRates> nodes);

// RESOURCE_EXHAUSTED where `node` is to store so many bytes, lacks some of it, and has less disk.
absl::Status CheckDisk(const NodeRates& rates, const PoolNode& node, uint64_t stored_bytes);

// Bytes of a partition with these slices, manifest.json left out.
uint64_t PartitionBytes(const Manifest& manifest, std::span<const ExpertSlice> slices);

// Contiguous ranges in proportion to how fast each node reads and computes. With two copies each
// node also stores the range that follows its own, the last one the first; but not the coordinator's
// (address kOwnAddress), and the coordinator, which has the container, nothing. Their order is the one
// that is predicted fastest after the worst single death; looked for among all orders of up to 7
// nodes, and else by rising shares. The plan has epoch 1 and its nodes are by range.
//   INVALID_ARGUMENT     no nodes or more than kMaxPlannedNodes, a rate that is not positive, a
//                        name or address given twice, copies other than 1 and 2, 2 for one node
//   FAILED_PRECONDITION  the model has no experts
//   RESOURCE_EXHAUSTED   a node has less disk than it needs; names it and both in bytes
absl::StatusOr<PoolProposal> ProposePool(const Manifest& manifest, std::span<const NodeRates> nodes,
                                         Placement placement, const PlacementOptions& options);

struct PoolProposals {
  PoolProposal best;
  std::optional<PoolProposal> other;
  absl::Status why_no_other;  // where the other placement is impossible
};

// Both placements, the one that is predicted faster first; units where they are equal. The errors
// of ProposePool where neither is possible.
absl::StatusOr<PoolProposals> ProposeFaster(const Manifest& manifest,
                                            std::span<const NodeRates> nodes,
                                            const PlacementOptions& options);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_PLACEMENT_H_

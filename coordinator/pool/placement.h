// Who computes and stores what, in proportion to what each machine was measured to do. Pure
// arithmetic: nothing is asked, opened or copied.
#ifndef SHOAL_COORDINATOR_POOL_PLACEMENT_H_
#define SHOAL_COORDINATOR_POOL_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "coordinator/pool/pool_forecast.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// The forecasts of a plan take time with the square of the number of nodes and more.
inline constexpr size_t kMaxPlannedNodes = 64;

enum class Placement { kUnits, kExperts };
absl::string_view PlacementName(Placement placement);  // "units", "experts"

struct PlacementOptions {
  int64_t copies = 1;  // 2: every range is stored by two nodes
  ForecastOptions forecast = {};
};

// A node of a proposal and what is predicted about it.
struct PlacedNode {
  size_t node = 0;    // index in the list of nodes that was given
  int64_t begin = 0;  // its range of units, or of experts, [begin, end)
  int64_t end = 0;
  double share = 0;           // of all units or experts, (0, 1]
  uint64_t stored_bytes = 0;  // of its partition, copies included
  NodeTimes times;            // while every node lives
  // After its death: whose copies are computed instead, and the speed. Absent where nobody has any,
  // and for the coordinator, whom nobody outlives.
  std::optional<size_t> stand_in;  // index in PoolProposal::nodes
  double tokens_per_second_after_death = 0;
  // Of a pool without it from the start; 0 for the only node.
  double tokens_per_second_without = 0;
  bool slows_the_pool = false;
};

struct PoolProposal {
  Placement placement = Placement::kUnits;
  PoolPlan plan;                  // epoch 1; nodes by range
  std::vector<PlacedNode> nodes;  // as plan.nodes
  std::vector<size_t> left_out;   // nodes that get nothing: there are not enough units or experts
  double layer_seconds = 0;
  double tokens_per_second = 0;
  // The least after one death; 0 where an answer would wait.
  double tokens_per_second_after_worst_death = 0;
};

// `total` things in whole numbers in proportion to `rates`, all positive, by the largest remainder;
// at least one for each where there are as many things as rates. Equal remainders: the first wins.
std::vector<int64_t> Apportion(int64_t total, std::span<const double> rates);

// Contiguous ranges in proportion to how fast each node reads and computes. With two copies each
// node also stores the range that follows its own, the last one the first; but not the coordinator's
// (address kOwnAddress), and the coordinator, which has the container, nothing. Their order is the one
// that is predicted fastest after the worst single death; looked for among all orders of up to 7
// nodes, and else by rising shares.
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

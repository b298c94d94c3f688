// What is predicted of a pool with a certain plan: in health, after each death, without each node.
// Pure arithmetic.
#ifndef SHOAL_COORDINATOR_POOL_POOL_PREDICTION_H_
#define SHOAL_COORDINATOR_POOL_POOL_PREDICTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/container/manifest.h"
#include "coordinator/pool/placement_axis.h"
#include "coordinator/pool/pool_forecast.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// A node of a proposal and what is predicted about it.
struct PlacedNode {
  size_t node = 0;            // index in the list of nodes that was given
  int64_t items = 0;          // units, or experts, that it computes
  double share = 0;           // of all units or experts, [0, 1]
  uint64_t stored_bytes = 0;  // of its partition, copies included; the coordinator has none
  NodeTimes times;            // while every node lives
  // After its death: whose copies are computed instead (indices in PoolProposal::nodes, rising), and
  // the speed. Absent where an answer would wait, and for the coordinator, whom nobody outlives.
  std::optional<std::vector<size_t>> stand_ins;
  double tokens_per_second_after_death = 0;
  // Of a pool that is placed anew without it; 0 for the only node.
  double tokens_per_second_without = 0;
  bool slows_the_pool = false;
};

struct PoolProposal {
  Placement placement = Placement::kUnits;
  PoolPlan plan;
  std::vector<PlacedNode> nodes;  // as plan.nodes
  std::vector<size_t> left_out;   // nodes that get nothing: there are not enough units or experts
  double layer_seconds = 0;
  double tokens_per_second = 0;
  // The least after one death; 0 where an answer would wait.
  double tokens_per_second_after_worst_death = 0;
};

// Fills in what follows from proposal.placement, .plan and .nodes[i].node: everything else but
// stored_bytes and left_out. The plan is one for `manifest` and made of slices of that placement.
void PredictPool(const Manifest& manifest, std::span<const NodeRates> nodes,
                 const ForecastOptions& options, PoolProposal& proposal);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_PREDICTION_H_

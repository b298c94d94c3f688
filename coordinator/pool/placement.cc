#include "coordinator/pool/placement.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/partition_index.h"
#include "common/status/status_macros.h"
#include "coordinator/pool/cells.h"
#include "coordinator/pool/load_balance.h"

namespace shoal {
namespace {

// 7: 720 rings, which is nothing; 10 would be 362,880.
constexpr size_t kMostNodesInAnyOrder = 7;
constexpr int64_t kMostCopies = 2;

absl::Status CheckRate(const NodeRates& node, double rate, absl::string_view what) {
  if (!std::isfinite(rate) || rate <= 0) {
    return absl::InvalidArgumentError(absl::StrCat("node ", node.name, ": ", what, " is ", rate,
                                                   "; a positive number is needed"));
  }
  return absl::OkStatus();
}

absl::Status CheckCopies(const PlacementOptions& options, size_t num_nodes) {
  if (options.copies < 1 || options.copies > kMostCopies ||
      options.copies > static_cast<int64_t>(num_nodes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.copies, " copies on ", num_nodes,
                     " nodes; 1 or 2, and no more than there are nodes, are possible"));
  }
  return absl::OkStatus();
}

// Nodes in the order of a ring, each with its range; the holder of a copy comes before its owner.
struct Ring {
  std::vector<size_t> order;  // indices of nodes
  std::vector<NodeRates> nodes;
  std::vector<std::vector<ExpertSlice>> ranges;

  size_t HolderOf(size_t position) const { return (position + order.size() - 1) % order.size(); }
};

Ring MakeRing(const PlacementAxis& axis, std::span<const NodeRates> nodes,
              std::span<const int64_t> shares, std::vector<size_t> order) {
  Ring ring;
  std::vector<int64_t> sizes;
  for (const size_t node : order) {
    ring.nodes.push_back(nodes[node]);
    sizes.push_back(shares[node]);
  }
  ring.ranges = axis.Ranges(sizes);
  ring.order = std::move(order);
  return ring;
}

bool IsCoordinator(const NodeRates& node) { return node.address == kOwnAddress; }

// Each range with those who can compute it: its node, then the holder of the copy, then a coordinator,
// which has everything and whom nobody outlives.
std::vector<Cell> CellsOf(const Ring& ring) {
  const auto own = static_cast<size_t>(
      std::find_if(ring.nodes.begin(), ring.nodes.end(), IsCoordinator) - ring.nodes.begin());
  std::vector<Cell> cells;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    Cell& cell = cells.emplace_back(Cell{ring.ranges[i].front(), {i}});
    if (i != own) {
      cell.holders.push_back(ring.HolderOf(i));
    }
    if (i != own && own < ring.order.size() && ring.HolderOf(i) != own) {
      cell.holders.push_back(own);
    }
  }
  return cells;
}

double WorstDeath(const ExpertSlice& whole, const PoolForecast& forecast, const Ring& ring) {
  const std::vector<Cell> cells = CellsOf(ring);
  double worst = 0;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    if (!IsCoordinator(ring.nodes[i])) {
      worst = std::max(
          worst, forecast.LayerSeconds(ring.nodes, WorkAfterDeath(whole, cells, cells.size(), i)));
    }
  }
  return worst;
}

Ring BestRing(const PlacementAxis& axis, const PoolForecast& forecast,
              std::span<const NodeRates> nodes, std::span<const int64_t> shares,
              std::vector<size_t> order) {
  if (order.size() > kMostNodesInAnyOrder) {
    // A range goes to the node before its own: by rising shares no step up, where the smaller has to
    // do what the larger alone had beside it, is larger than it must be.
    std::stable_sort(order.begin(), order.end(),
                     [shares](size_t a, size_t b) { return shares[a] < shares[b]; });
    return MakeRing(axis, nodes, shares, std::move(order));
  }
  Ring best = MakeRing(axis, nodes, shares, order);
  const ExpertSlice whole = axis.SliceOf({0, axis.total()});
  double best_seconds = WorstDeath(whole, forecast, best);
  // A ring has no beginning: the first stays where it is.
  while (std::next_permutation(order.begin() + 1, order.end())) {
    Ring ring = MakeRing(axis, nodes, shares, order);
    if (const double seconds = WorstDeath(whole, forecast, ring); seconds < best_seconds) {
      best_seconds = seconds;
      best = std::move(ring);
    }
  }
  return best;
}

PoolPlan MakePlan(const Manifest& manifest, const Ring& ring, bool with_copies) {
  PoolPlan plan;
  plan.identity = manifest.identity;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    PoolNode node{ring.nodes[i].name, ring.nodes[i].address, ring.ranges[i], {}};
    const size_t next = (i + 1) % ring.order.size();
    // The coordinator holds everything, and nobody outlives it.
    if (with_copies && !node.is_coordinator() && !IsCoordinator(ring.nodes[next])) {
      node.copies = ring.ranges[next];
    }
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

}  // namespace

absl::Status CheckRates(const Manifest& manifest, std::span<const NodeRates> nodes) {
  if (manifest.whole_experts().empty()) {
    return absl::FailedPreconditionError("the model has no experts, so nothing can be shared out");
  }
  if (nodes.empty() || nodes.size() > kMaxPlannedNodes) {
    return absl::InvalidArgumentError(absl::StrCat("a pool of ", nodes.size(), " nodes; 1 to ",
                                                   kMaxPlannedNodes, " can be planned"));
  }
  std::set<std::string> names;
  for (const NodeRates& node : nodes) {
    if (!names.insert(node.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two nodes are called ", node.name, "; give each its own name"));
    }
    SHOAL_RETURN_IF_ERROR(CheckRate(node, node.read_bytes_per_second, "read_bytes_per_second"));
    SHOAL_RETURN_IF_ERROR(
        CheckRate(node, node.compute_bytes_per_second, "compute_bytes_per_second"));
  }
  return absl::OkStatus();
}

absl::Status CheckDisk(const NodeRates& rates, const PoolNode& node, uint64_t stored_bytes) {
  const std::vector<ExpertSlice> stored = node.stored();
  const bool there = std::all_of(stored.begin(), stored.end(), [&rates](const ExpertSlice& slice) {
    return Uncovered(slice, rates.holds).empty();
  });
  if (there || stored_bytes <= rates.free_disk_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "node ", node.name, " would store ", stored_bytes, " bytes and has ", rates.free_disk_bytes,
      " bytes of disk free; free some, add a node, or use --copies 1"));
}

uint64_t PartitionBytes(const Manifest& manifest, std::span<const ExpertSlice> slices) {
  uint64_t bytes = 0;
  for (const FileEntry& file : PartitionFiles(manifest, slices)) {
    bytes += file.size_bytes;
  }
  return bytes;
}

absl::StatusOr<PoolProposal> ProposePool(const Manifest& manifest, std::span<const NodeRates> nodes,
                                         Placement placement, const PlacementOptions& options) {
  SHOAL_RETURN_IF_ERROR(CheckRates(manifest, nodes));
  SHOAL_RETURN_IF_ERROR(CheckCopies(options, nodes.size()));
  const PlacementAxis axis(manifest, placement);
  const PoolForecast forecast(manifest, options.forecast);
  const std::vector<int64_t> shares = axis.Shares(forecast, nodes);
  PoolProposal proposal;
  proposal.placement = placement;
  std::vector<size_t> order;
  for (size_t i = 0; i < nodes.size(); ++i) {
    (shares[i] > 0 ? order : proposal.left_out).push_back(i);
  }
  const bool with_copies = options.copies > 1;
  if (with_copies && order.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("only node ", nodes[order.front()].name,
                     " gets something to compute, so nobody can hold a second copy"));
  }
  const Ring ring = with_copies ? BestRing(axis, forecast, nodes, shares, std::move(order))
                                : MakeRing(axis, nodes, shares, std::move(order));
  proposal.plan = MakePlan(manifest, ring, with_copies);
  SHOAL_RETURN_IF_ERROR(CheckPlan(proposal.plan, manifest));
  for (size_t i = 0; i < ring.order.size(); ++i) {
    PlacedNode& placed = proposal.nodes.emplace_back();
    placed.node = ring.order[i];
    if (!proposal.plan.nodes[i].is_coordinator()) {
      placed.stored_bytes = PartitionBytes(manifest, proposal.plan.nodes[i].stored());
    }
    SHOAL_RETURN_IF_ERROR(CheckDisk(ring.nodes[i], proposal.plan.nodes[i], placed.stored_bytes));
  }
  PredictPool(manifest, nodes, options.forecast, proposal);
  return proposal;
}

absl::StatusOr<PoolProposals> ProposeFaster(const Manifest& manifest,
                                            std::span<const NodeRates> nodes,
                                            const PlacementOptions& options) {
  absl::StatusOr<PoolProposal> units = ProposePool(manifest, nodes, Placement::kUnits, options);
  absl::StatusOr<PoolProposal> experts = ProposePool(manifest, nodes, Placement::kExperts, options);
  if (!units.ok() && !experts.ok()) {
    return units.status();
  }
  if (!units.ok()) {
    return PoolProposals{*std::move(experts), std::nullopt, units.status()};
  }
  if (!experts.ok()) {
    return PoolProposals{*std::move(units), std::nullopt, experts.status()};
  }
  if (experts->tokens_per_second > units->tokens_per_second * (1 + 1e-9)) {
    std::swap(units, experts);
  }
  return PoolProposals{*std::move(units), *std::move(experts), absl::OkStatus()};
}

}  // namespace shoal

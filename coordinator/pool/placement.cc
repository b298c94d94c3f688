#include "coordinator/pool/placement.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/partition_index.h"
#include "common/status/status_macros.h"

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

absl::Status CheckInput(const Manifest& manifest, std::span<const NodeRates> nodes,
                        const PlacementOptions& options) {
  if (manifest.whole_experts().empty()) {
    return absl::FailedPreconditionError("the model has no experts, so nothing can be shared out");
  }
  if (nodes.empty() || nodes.size() > kMaxPlannedNodes) {
    return absl::InvalidArgumentError(absl::StrCat("a pool of ", nodes.size(), " nodes; 1 to ",
                                                   kMaxPlannedNodes, " can be planned"));
  }
  if (options.copies < 1 || options.copies > kMostCopies ||
      options.copies > static_cast<int64_t>(nodes.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.copies, " copies on ", nodes.size(),
                     " nodes; 1 or 2, and no more than there are nodes, are possible"));
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

// The work of one placement: how many units or experts each node has, and who follows whom.
class Layout {
 public:
  Layout(const Manifest& manifest, Placement placement, const ForecastOptions& options)
      : manifest_(manifest), placement_(placement), forecast_(manifest, options) {}

  const PoolForecast& forecast() const { return forecast_; }
  int64_t total() const {
    return placement_ == Placement::kUnits ? manifest_.unit_layout.num_units
                                           : manifest_.config.moe.num_experts;
  }

  std::vector<int64_t> Shares(std::span<const NodeRates> nodes) const {
    std::vector<double> rates;
    for (const NodeRates& node : nodes) {
      rates.push_back(forecast_.RateOf(node, 1.0 / static_cast<double>(nodes.size())));
    }
    return Apportion(total(), rates);
  }

  // Contiguous ranges of these sizes, one after the other; nothing where a size is 0.
  std::vector<std::vector<ExpertSlice>> Ranges(std::span<const int64_t> sizes) const {
    std::vector<std::vector<ExpertSlice>> ranges;
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      ExpertSlice slice = manifest_.whole_experts();
      if (placement_ == Placement::kUnits) {
        slice.units = {begin, begin + size};
      } else {
        slice.experts = {begin, begin + size};
      }
      ranges.push_back(size > 0 ? std::vector<ExpertSlice>{slice} : std::vector<ExpertSlice>{});
      begin += size;
    }
    return ranges;
  }

  double LayerSeconds(std::span<const NodeRates> nodes) const {
    return forecast_.LayerSeconds(nodes, Ranges(Shares(nodes)));
  }

 private:
  const Manifest& manifest_;
  const Placement placement_;
  const PoolForecast forecast_;
};

// Nodes in the order of a ring, each with its range; the holder of a copy comes before its owner.
struct Ring {
  std::vector<size_t> order;  // indices of nodes
  std::vector<NodeRates> nodes;
  std::vector<std::vector<ExpertSlice>> ranges;

  size_t HolderOf(size_t position) const { return (position + order.size() - 1) % order.size(); }
};

Ring MakeRing(const Layout& layout, std::span<const NodeRates> nodes,
              std::span<const int64_t> shares, std::vector<size_t> order) {
  Ring ring;
  std::vector<int64_t> sizes;
  for (const size_t node : order) {
    ring.nodes.push_back(nodes[node]);
    sizes.push_back(shares[node]);
  }
  ring.ranges = layout.Ranges(sizes);
  ring.order = std::move(order);
  return ring;
}

double LayerSecondsAfterDeath(const Layout& layout, const Ring& ring, size_t dead) {
  std::vector<std::vector<ExpertSlice>> work = ring.ranges;
  std::vector<ExpertSlice>& holder = work[ring.HolderOf(dead)];
  holder.insert(holder.end(), work[dead].begin(), work[dead].end());
  work[dead].clear();
  return layout.forecast().LayerSeconds(ring.nodes, work);
}

double WorstDeath(const Layout& layout, const Ring& ring) {
  double worst = 0;
  for (size_t i = 0; i < ring.order.size(); ++i) {
    worst = std::max(worst, LayerSecondsAfterDeath(layout, ring, i));
  }
  return worst;
}

Ring BestRing(const Layout& layout, std::span<const NodeRates> nodes,
              std::span<const int64_t> shares, std::vector<size_t> order) {
  if (order.size() > kMostNodesInAnyOrder) {
    // A range goes to the node before its own: by rising shares no step up, where the smaller takes
    // over from the larger, is larger than it must be, and the one step down costs least.
    std::stable_sort(order.begin(), order.end(),
                     [shares](size_t a, size_t b) { return shares[a] < shares[b]; });
    return MakeRing(layout, nodes, shares, std::move(order));
  }
  Ring best = MakeRing(layout, nodes, shares, order);
  double best_seconds = WorstDeath(layout, best);
  // A ring has no beginning: the first stays where it is.
  while (std::next_permutation(order.begin() + 1, order.end())) {
    Ring ring = MakeRing(layout, nodes, shares, order);
    if (const double seconds = WorstDeath(layout, ring); seconds < best_seconds) {
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
    if (with_copies && !node.is_coordinator() && ring.nodes[next].address != kOwnAddress) {
      node.copies = ring.ranges[next];
    }
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

uint64_t StoredBytes(const Manifest& manifest, const PoolNode& node) {
  uint64_t bytes = 0;
  if (node.is_coordinator()) {
    return bytes;  // beside the container, which it has in any case
  }
  for (const FileEntry& file : PartitionFiles(manifest, node.stored())) {
    bytes += file.size_bytes;
  }
  return bytes;
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

double WithoutNode(const Layout& layout, std::span<const NodeRates> nodes, size_t without) {
  std::vector<NodeRates> others(nodes.begin(), nodes.end());
  others.erase(others.begin() + static_cast<std::ptrdiff_t>(without));
  return others.empty() ? 0 : layout.forecast().TokensPerSecond(layout.LayerSeconds(others));
}

PlacedNode Place(const Layout& layout, const Ring& ring, Placement placement, size_t i) {
  const ExpertSlice& slice = ring.ranges[i].front();
  const bool by_units = placement == Placement::kUnits;
  PlacedNode placed;
  placed.node = ring.order[i];
  placed.begin = by_units ? slice.units.begin : slice.experts.begin;
  placed.end = by_units ? slice.units.end : slice.experts.end;
  placed.share =
      static_cast<double>(placed.end - placed.begin) / static_cast<double>(layout.total());
  placed.times = layout.forecast().TimesOf(ring.nodes[i], ring.ranges[i]);
  return placed;
}

// What is predicted of every node's death and absence.
void Forecast(const Layout& layout, std::span<const NodeRates> nodes, const Ring& ring,
              bool with_copies, PoolProposal& proposal) {
  const PoolForecast& forecast = layout.forecast();
  proposal.layer_seconds = forecast.LayerSeconds(ring.nodes, ring.ranges);
  proposal.tokens_per_second = forecast.TokensPerSecond(proposal.layer_seconds);
  std::optional<double> worst;
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    PlacedNode& node = proposal.nodes[i];
    if (with_copies && !proposal.plan.nodes[i].is_coordinator()) {
      node.stand_in = ring.HolderOf(i);
      node.tokens_per_second_after_death =
          forecast.TokensPerSecond(LayerSecondsAfterDeath(layout, ring, i));
      worst = std::min(worst.value_or(node.tokens_per_second_after_death),
                       node.tokens_per_second_after_death);
    }
    node.tokens_per_second_without = WithoutNode(layout, nodes, node.node);
    // More than rounding.
    node.slows_the_pool = node.tokens_per_second_without > proposal.tokens_per_second * (1 + 1e-9);
  }
  proposal.tokens_per_second_after_worst_death = worst.value_or(0);
}

}  // namespace

absl::string_view PlacementName(Placement placement) {
  return placement == Placement::kUnits ? "units" : "experts";
}

std::vector<int64_t> Apportion(int64_t total, std::span<const double> rates) {
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<double> quotas;
  std::vector<int64_t> counts;
  for (const double rate : rates) {
    quotas.push_back(static_cast<double>(total) * rate / sum);
    counts.push_back(static_cast<int64_t>(quotas.back()));
  }
  // How far a count is below its quota; rounding must not decide between equals.
  const auto lacks = [&](size_t i) {
    return std::round((quotas[i] - static_cast<double>(counts[i])) * 1e9);
  };
  std::vector<size_t> all(rates.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto less = [&](size_t a, size_t b) { return lacks(a) < lacks(b); };
  for (int64_t left = total - std::accumulate(counts.begin(), counts.end(), int64_t{0}); left > 0;
       --left) {
    ++counts[*std::max_element(all.begin(), all.end(), less)];
  }
  if (total >= std::ssize(rates)) {
    for (auto none = std::find(counts.begin(), counts.end(), 0); none != counts.end();
         none = std::find(counts.begin(), counts.end(), 0)) {
      // From whom it is missed least, of those that keep one.
      const auto giver = std::min_element(all.begin(), all.end(), [&](size_t a, size_t b) {
        const bool a_can = counts[a] > 1;
        const bool b_can = counts[b] > 1;
        return a_can != b_can ? a_can : lacks(a) < lacks(b);
      });
      --counts[*giver];
      *none = 1;
    }
  }
  return counts;
}

absl::StatusOr<PoolProposal> ProposePool(const Manifest& manifest, std::span<const NodeRates> nodes,
                                         Placement placement, const PlacementOptions& options) {
  SHOAL_RETURN_IF_ERROR(CheckInput(manifest, nodes, options));
  const Layout layout(manifest, placement, options.forecast);
  const std::vector<int64_t> shares = layout.Shares(nodes);
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
  const Ring ring = with_copies ? BestRing(layout, nodes, shares, std::move(order))
                                : MakeRing(layout, nodes, shares, std::move(order));
  proposal.plan = MakePlan(manifest, ring, with_copies);
  SHOAL_RETURN_IF_ERROR(CheckPlan(proposal.plan, manifest));
  for (size_t i = 0; i < ring.order.size(); ++i) {
    proposal.nodes.push_back(Place(layout, ring, placement, i));
    proposal.nodes[i].stored_bytes = StoredBytes(manifest, proposal.plan.nodes[i]);
    SHOAL_RETURN_IF_ERROR(
        CheckDisk(ring.nodes[i], proposal.plan.nodes[i], proposal.nodes[i].stored_bytes));
  }
  Forecast(layout, nodes, ring, with_copies, proposal);
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

#include "coordinator/pool/pool_prediction.h"

#include <algorithm>
#include <optional>

#include "coordinator/pool/cells.h"
#include "coordinator/pool/load_balance.h"

namespace shoal {
namespace {

using Work = std::vector<std::vector<ExpertSlice>>;

bool Overlap(std::span<const ExpertSlice> some, std::span<const ExpertSlice> others) {
  return std::any_of(some.begin(), some.end(), [others](const ExpertSlice& a) {
    return std::any_of(others.begin(), others.end(),
                       [&a](const ExpertSlice& b) { return !Intersect(a, b).empty(); });
  });
}

class Predictor {
 public:
  Predictor(const Manifest& manifest, std::span<const NodeRates> nodes,
            const ForecastOptions& options, PoolProposal& proposal)
      : axis_(manifest, proposal.placement),
        forecast_(manifest, options),
        whole_(manifest.whole_experts()),
        all_(nodes),
        proposal_(proposal) {
    for (size_t i = 0; i < proposal.nodes.size(); ++i) {
      placed_.push_back(nodes[proposal.nodes[i].node]);
      work_.push_back(proposal.plan.nodes[i].slices);
    }
    CutCells();
  }

  void Run() {
    proposal_.layer_seconds = forecast_.LayerSeconds(placed_, work_);
    proposal_.tokens_per_second = forecast_.TokensPerSecond(proposal_.layer_seconds);
    for (size_t i = 0; i < placed_.size(); ++i) {
      Place(i);
      Kill(i);
      LeaveOut(i);
    }
    std::optional<double> worst;
    for (size_t i = 0; i < placed_.size(); ++i) {
      if (!IsCoordinator(i)) {
        const double speed = proposal_.nodes[i].tokens_per_second_after_death;
        worst = std::min(worst.value_or(speed), speed);
      }
    }
    proposal_.tokens_per_second_after_worst_death = worst.value_or(0);
  }

 private:
  // As a pool does: the coordinator has everything and is asked last.
  void CutCells() {
    std::vector<size_t> order;
    std::vector<size_t> last;
    for (size_t i = 0; i < placed_.size(); ++i) {
      (IsCoordinator(i) ? last : order).push_back(i);
    }
    order.insert(order.end(), last.begin(), last.end());
    std::vector<Holdings> holdings;
    holdings.reserve(order.size());
    for (const size_t i : order) {
      const PoolNode& planned = proposal_.plan.nodes[i];
      holdings.push_back(
          {IsCoordinator(i) ? std::vector{whole_} : planned.stored(), planned.slices});
    }
    cells_ = MakeCells(whole_, holdings);
    for (Cell& cell : cells_) {
      for (size_t& holder : cell.holders) {
        holder = order[holder];
      }
    }
  }

  bool IsCoordinator(size_t i) const { return proposal_.plan.nodes[i].is_coordinator(); }

  void Place(size_t i) {
    PlacedNode& node = proposal_.nodes[i];
    node.items = 0;
    for (const ExpertSlice& slice : work_[i]) {
      node.items += axis_.RangeOf(slice)->size();
    }
    node.share = static_cast<double>(node.items) / static_cast<double>(axis_.total());
    if (!work_[i].empty()) {
      node.times = forecast_.TimesOf(placed_[i], work_[i]);
    }
  }

  // The others share its work, as the pool has it.
  void Kill(size_t dead) {
    if (IsCoordinator(dead)) {
      return;
    }
    const Work work = WorkAfterDeath(whole_, cells_, placed_.size(), dead);
    if (!work[dead].empty()) {
      return;
    }
    PlacedNode& node = proposal_.nodes[dead];
    node.stand_ins.emplace();
    for (size_t i = 0; i < work.size(); ++i) {
      if (Overlap(work[i], work_[dead])) {
        node.stand_ins->push_back(i);
      }
    }
    node.tokens_per_second_after_death =
        forecast_.TokensPerSecond(forecast_.LayerSeconds(placed_, work));
  }

  void LeaveOut(size_t i) {
    PlacedNode& node = proposal_.nodes[i];
    std::vector<NodeRates> others(all_.begin(), all_.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(node.node));
    if (!others.empty()) {
      node.tokens_per_second_without = forecast_.TokensPerSecond(
          forecast_.LayerSeconds(others, axis_.Ranges(axis_.Shares(forecast_, others))));
    }
    // More than rounding.
    node.slows_the_pool = node.tokens_per_second_without > proposal_.tokens_per_second * (1 + 1e-9);
  }

  const PlacementAxis axis_;
  const PoolForecast forecast_;
  const ExpertSlice whole_;
  const std::span<const NodeRates> all_;
  PoolProposal& proposal_;
  std::vector<NodeRates> placed_;  // as proposal_.nodes
  Work work_;
  std::vector<Cell> cells_;
};

}  // namespace

void PredictPool(const Manifest& manifest, std::span<const NodeRates> nodes,
                 const ForecastOptions& options, PoolProposal& proposal) {
  Predictor(manifest, nodes, options, proposal).Run();
}

}  // namespace shoal

#include "coordinator/pool/replan.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/bank_scan.h"
#include "common/status/status_macros.h"
#include "coordinator/pool/kept_shares.h"

namespace shoal {
namespace {

// Bytes of the records of these slices in all layers.
uint64_t RecordBytesOf(const Manifest& manifest, std::span<const ExpertSlice> slices) {
  uint64_t bytes = 0;
  for (const ExpertSlice& slice : slices) {
    bytes += static_cast<uint64_t>(slice.experts.size()) *
             RecordBytes(manifest.unit_layout, slice.units) * manifest.banks.size();
  }
  return bytes;
}

Move MoveOf(const Manifest& manifest, uint64_t bytes) {
  const ExpertSlice whole = manifest.whole_experts();
  return {bytes, static_cast<double>(bytes) /
                     static_cast<double>(RecordBytesOf(manifest, std::span(&whole, 1)))};
}

// The records that a node fetches which holds `held` and is to hold `wanted`.
uint64_t BytesToFetch(const Manifest& manifest, std::span<const ExpertSlice> held,
                      std::span<const ExpertSlice> wanted) {
  const bool lacks = std::any_of(wanted.begin(), wanted.end(), [held](const ExpertSlice& slice) {
    return !Uncovered(slice, held).empty();
  });
  return lacks ? RecordBytesOf(manifest, wanted) : 0;
}

bool IsCutAlong(const PlacementAxis& axis, const PoolPlan& plan) {
  return std::all_of(plan.nodes.begin(), plan.nodes.end(), [&axis](const PoolNode& node) {
    const std::vector<ExpertSlice> stored = node.stored();
    return std::all_of(stored.begin(), stored.end(), [&axis](const ExpertSlice& slice) {
      return axis.RangeOf(slice).has_value();
    });
  });
}

// The placements that can go on from `kept`: both where one node has everything.
absl::StatusOr<std::vector<Placement>> PlacementsOf(const Manifest& manifest, const PoolPlan& kept,
                                                    const std::optional<Placement>& wanted) {
  std::vector<Placement> placements;
  for (const Placement placement : {Placement::kUnits, Placement::kExperts}) {
    if (IsCutAlong(PlacementAxis(manifest, placement), kept)) {
      placements.push_back(placement);
    }
  }
  if (placements.empty()) {
    return absl::FailedPreconditionError(
        "the plan to keep cuts experts and units; only one that gives every node units of all "
        "experts, or whole experts, can be kept: plan anew");
  }
  if (!wanted) {
    return placements;
  }
  if (std::find(placements.begin(), placements.end(), *wanted) == placements.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan to keep is by ", PlacementName(placements.front()), ", not by ",
                     PlacementName(*wanted), ": nothing could be kept; plan anew"));
  }
  return std::vector<Placement>{*wanted};
}

// A machine on both sides of the change.
struct Member {
  size_t node = 0;                 // index in the rates
  const PoolNode* kept = nullptr;  // null: `kept` lacks it
  std::vector<ExpertSlice> held;   // on its disk
};

class Replanner {
 public:
  Replanner(const Manifest& manifest, std::span<const NodeRates> nodes, const PoolPlan& kept,
            uint64_t epoch, const ReplanOptions& options)
      : manifest_(manifest), nodes_(nodes), kept_(kept), epoch_(epoch), options_(options) {}

  absl::Status TakeMembers() {
    for (const PoolNode& kept : kept_.nodes) {
      const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&kept](const NodeRates& node) {
        return node.name == kept.name;
      });
      if (found == nodes_.end()) {
        gone_.push_back(&kept);
        continue;
      }
      SHOAL_RETURN_IF_ERROR(CheckIsFilled(*found, kept));
      members_.push_back({static_cast<size_t>(found - nodes_.begin()), &kept,
                          HeldBy(*found).empty() ? kept.stored() : HeldBy(*found)});
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (std::none_of(members_.begin(), members_.end(),
                       [i](const Member& member) { return member.node == i; })) {
        members_.push_back({i, nullptr, HeldBy(nodes_[i])});
      }
    }
    return CheckNothingIsLost();
  }

  absl::StatusOr<Replan> Run(Placement placement) {
    const PlacementAxis axis(manifest_, placement);
    const int64_t had = CopiesOf(kept_, false);
    const KeptShares shares =
        ShareKeeping(axis.total(), Sharing(axis), options_.copies.value_or(had));
    Replan replan;
    replan.proposal = Propose(axis, shares);
    SHOAL_RETURN_IF_ERROR(CheckPlan(replan.proposal.plan, manifest_));
    replan.copies = CopiesOf(replan.proposal.plan, true);
    for (const ItemRange& range : shares.stored_once) {
      replan.stored_once.push_back(axis.SliceOf(range));
    }
    if (options_.copies.value_or(1) > replan.copies) {
      return StoredOnce(replan);
    }
    if (had == 1) {
      replan.stored_once.clear();
    }
    SHOAL_RETURN_IF_ERROR(Weigh(replan));
    for (const PoolNode* node : gone_) {
      replan.gone.push_back(node->name);
    }
    PredictPool(manifest_, nodes_, options_.forecast, replan.proposal);
    return replan;
  }

  // With as many copies as `replan` has.
  std::optional<PlacedAnew> Anew(const Replan& replan) const {
    const absl::StatusOr<PoolProposals> anew =
        ProposeFaster(manifest_, nodes_, {.copies = replan.copies, .forecast = options_.forecast});
    if (!anew.ok()) {
      return std::nullopt;
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < anew->best.nodes.size(); ++i) {
      bytes += BytesToFetch(manifest_, MemberOf(anew->best.nodes[i]).held,
                            anew->best.plan.nodes[i].stored());
    }
    return PlacedAnew{anew->best.tokens_per_second, MoveOf(manifest_, bytes)};
  }

 private:
  static bool IsCoordinator(const NodeRates& rates) { return rates.address == kOwnAddress; }

  // By its own word; the coordinator has the container.
  std::vector<ExpertSlice> HeldBy(const NodeRates& rates) const {
    return IsCoordinator(rates) ? std::vector{manifest_.whole_experts()} : rates.holds;
  }

  absl::Status CheckIsFilled(const NodeRates& rates, const PoolNode& kept) const {
    const std::vector<ExpertSlice> stored = kept.stored();
    // One that was asked and is empty has nothing that its kernels could have been measured with.
    for (const ExpertSlice& slice : stored) {
      const std::vector<ExpertSlice> held = HeldBy(rates);
      const auto missing = held.empty() && !rates.compute_assumed ? std::vector<ExpertSlice>()
                                                                  : Uncovered(slice, held);
      if (!missing.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "node ", kept.name, " at ", rates.address, " lacks ", FormatSlice(missing.front()),
            ", which the plan to keep gives it: fill it by that plan first, or start it with "
            "another --name as a new machine"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckNothingIsLost() const {
    std::vector<ExpertSlice> held;
    bool any_new = false;
    for (const Member& member : members_) {
      held.insert(held.end(), member.held.begin(), member.held.end());
      any_new = any_new || member.held.empty();
    }
    const std::vector<ExpertSlice> lost = Uncovered(manifest_.whole_experts(), held);
    if (lost.empty() || (any_new && options_.replace)) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        FormatSlice(lost.front()), " are stored by none of these nodes: the plan to keep has ",
        NamesOfGone(), " too",
        kept_.coordinator() != nullptr ? " (the coordinator: say --own)" : "",
        "; name what still runs of them among the nodes",
        any_new ? ", or say --replace to have new nodes fetch all that is lost"
                : ", or add a new machine and say --replace to have it fetch all that is lost"));
  }

  std::string NamesOfGone() const {
    return absl::StrJoin(gone_, ", ",
                         [](std::string* text, const PoolNode* node) { text->append(node->name); });
  }

  const Member& MemberOf(const PlacedNode& placed) const {
    return *std::find_if(members_.begin(), members_.end(),
                         [&placed](const Member& member) { return member.node == placed.node; });
  }

  // 2 where any node but the coordinator can be lost. It counts as a holder of what others compute
  // only if that is asked for.
  int64_t CopiesOf(const PoolPlan& plan, bool with_coordinator) const {
    const ExpertSlice whole = manifest_.whole_experts();
    for (const PoolNode& lost : plan.remote()) {
      std::vector<ExpertSlice> others;
      for (const PoolNode& other : plan.nodes) {
        const std::vector<ExpertSlice> stored =
            other.is_coordinator() && with_coordinator ? std::vector{whole} : other.stored();
        if (other.name != lost.name) {
          others.insert(others.end(), stored.begin(), stored.end());
        }
      }
      if (!Uncovered(whole, others).empty()) {
        return 1;
      }
    }
    return 2;
  }

  std::vector<SharingNode> Sharing(const PlacementAxis& axis) const {
    const PoolForecast forecast(manifest_, options_.forecast);
    std::vector<SharingNode> sharing;
    sharing.reserve(members_.size());
    for (const Member& member : members_) {
      SharingNode& node = sharing.emplace_back();
      node.rate = forecast.RateOf(nodes_[member.node], 1.0 / static_cast<double>(members_.size()));
      node.is_new = member.held.empty();
      node.is_last = IsCoordinator(nodes_[member.node]);
      if (member.kept != nullptr) {
        for (const ExpertSlice& slice : member.kept->slices) {
          node.computes.push_back(*axis.RangeOf(slice));
        }
      }
      for (int64_t i = 0; i < axis.total(); ++i) {
        if (Uncovered(axis.SliceOf({i, i + 1}), member.held).empty()) {
          node.stores.push_back({i, i + 1});
        }
      }
    }
    return sharing;
  }

  PoolProposal Propose(const PlacementAxis& axis, const KeptShares& shares) const {
    const auto slices_of = [&axis](const std::vector<ItemRange>& ranges) {
      std::vector<ExpertSlice> slices;
      slices.reserve(ranges.size());
      for (const ItemRange& range : ranges) {
        slices.push_back(axis.SliceOf(range));
      }
      return slices;
    };
    PoolProposal proposal;
    proposal.placement = axis.placement();
    proposal.plan.identity = manifest_.identity;
    proposal.plan.epoch = epoch_;
    for (size_t m = 0; m < members_.size(); ++m) {
      const NodeRates& rates = nodes_[members_[m].node];
      PoolNode node{rates.name, rates.address, slices_of(shares.nodes[m].computes),
                    slices_of(shares.nodes[m].copies)};
      if (node.is_coordinator()) {
        node.copies.clear();  // it holds everything
      }
      if (node.slices.empty() && node.copies.empty()) {
        proposal.left_out.push_back(members_[m].node);
        continue;
      }
      if (node.address.empty() && members_[m].kept != nullptr) {
        node.address = members_[m].kept->address;
      }
      proposal.plan.nodes.push_back(std::move(node));
      proposal.nodes.emplace_back().node = members_[m].node;
    }
    return proposal;
  }

  // Disk space, and what has to be fetched.
  absl::Status Weigh(Replan& replan) const {
    uint64_t bytes = 0;
    for (size_t i = 0; i < replan.proposal.nodes.size(); ++i) {
      PlacedNode& placed = replan.proposal.nodes[i];
      const PoolNode& node = replan.proposal.plan.nodes[i];
      const Member& member = MemberOf(placed);
      if (member.kept == nullptr) {
        replan.added.push_back(node.name);
      }
      if (member.held.empty()) {
        placed.stored_bytes = PartitionBytes(manifest_, node.stored());
        SHOAL_RETURN_IF_ERROR(CheckDisk(nodes_[placed.node], node, placed.stored_bytes));
        bytes += RecordBytesOf(manifest_, node.stored());
      } else if (!node.is_coordinator()) {
        placed.stored_bytes = PartitionBytes(manifest_, member.held);
      }
    }
    replan.move = MoveOf(manifest_, bytes);
    return absl::OkStatus();
  }

  static absl::Status StoredOnce(const Replan& replan) {
    return absl::FailedPreconditionError(absl::StrCat(
        FormatSlice(replan.stored_once.front()),
        " would be stored once each, and nodes that are filled fetch nothing: add a machine, which "
        "then stores a second copy; or use --copies 1, or plan anew"));
  }

  const Manifest& manifest_;
  const std::span<const NodeRates> nodes_;
  const PoolPlan& kept_;
  const uint64_t epoch_;
  const ReplanOptions& options_;
  std::vector<Member> members_;  // in the new plan's order
  std::vector<const PoolNode*> gone_;
};

}  // namespace

absl::StatusOr<Replan> ReplanPool(const Manifest& manifest, std::span<const NodeRates> nodes,
                                  const PoolPlan& kept, const ReplanOptions& options) {
  SHOAL_RETURN_IF_ERROR(CheckRates(manifest, nodes));
  SHOAL_RETURN_IF_ERROR(CheckPlan(kept, manifest));
  SHOAL_ASSIGN_OR_RETURN(const std::vector<Placement> placements,
                         PlacementsOf(manifest, kept, options.placement));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t epoch, NextEpoch(kept));
  Replanner replanner(manifest, nodes, kept, epoch, options);
  SHOAL_RETURN_IF_ERROR(replanner.TakeMembers());
  std::optional<Replan> best;
  for (const Placement placement : placements) {
    SHOAL_ASSIGN_OR_RETURN(Replan replan, replanner.Run(placement));
    // More than rounding.
    if (!best ||
        replan.proposal.tokens_per_second > best->proposal.tokens_per_second * (1 + 1e-9)) {
      best = std::move(replan);
    }
  }
  best->anew = replanner.Anew(*best);
  for (PlacedNode& node : best->proposal.nodes) {
    // A pool without it would be placed anew, so that this one is to be compared if it was, too.
    node.slows_the_pool =
        node.slows_the_pool && best->anew &&
        node.tokens_per_second_without > best->anew->tokens_per_second * (1 + 1e-9);
  }
  return *std::move(best);
}

}  // namespace shoal

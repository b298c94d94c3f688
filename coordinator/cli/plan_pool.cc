#include "coordinator/cli/plan_pool.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "coordinator/cli/exit_code.h"
#include "coordinator/pool/node_survey.h"
#include "coordinator/pool/own_rates.h"
#include "coordinator/pool/pool_spec.h"

namespace shoal {
namespace {

// A plan that takes the place of an older one has a larger epoch. Anything else is not overwritten.
absl::Status Write(PoolPlan plan, const std::string& path) {
  if (std::filesystem::exists(path)) {
    const absl::StatusOr<PoolPlan> old = ReadPlan(path);
    SHOAL_RETURN_IF_ERROR(
        Annotate(old.status(), "--out: what is there is no plan and is not overwritten"));
    if (old->identity == plan.identity) {
      const absl::StatusOr<uint64_t> next = NextEpoch(*old);
      SHOAL_RETURN_IF_ERROR(Annotate(next.status(), absl::StrCat("--out ", path)));
      plan.epoch = std::max(plan.epoch, *next);
    }
  }
  return WritePlan(plan, path);
}

}  // namespace

void PlanPoolFlags::Add(FlagSet& flags) {
  flags.Heading("Pool");
  flags.Text("--nodes", "ADDRESS,...|FILE", &nodes,
             "Plan a pool of these nodes: addresses of shoal-node, which are\nasked for their "
             "rates, or a file with the rates (docs/format.md)");
  flags.Switch("--own", &own,
               "Let the coordinator compute too, out of DIR: measures the disk and\nthe kernels of "
               "this machine");
  flags.Integer(
      "--copies", &copies, {1, 2},
      "Nodes that store each unit (default 1, or as many as --keep has);\nwith 2 any one may die");
  flags.Choice("--placement", {"auto", "units", "experts"}, &placement,
               "Slices of all experts, whole experts, or what is predicted\nfaster (default auto)");
  flags.Switch("--explain", &explain, "Say how the numbers came about");
  flags.Text("--out", "FILE", &out, "Write the plan, for `shoal shard --plan` and `run --nodes`");
  flags.Text(
      "--keep", "FILE", &keep,
      "Go on from this plan: its nodes keep what they store and fetch\nnothing, and machines "
      "that it lacks take a share of it");
  flags.Switch("--replace", &replace,
               "With --keep: new nodes fetch also what only nodes stored that\n--nodes lacks, "
               "because they are gone for good");
  flags.Real("--hit-rate", &hit_rate, "Share of experts found in memory, 0 to 1 (default 0)");
  flags.Real("--trunk-ms", &trunk_ms,
             "Milliseconds that a token takes beside its experts (default 0)");
  protection.Add(flags);
}

absl::Status PlanPoolFlags::Check() const {
  const bool any = copies || placement || out || keep || replace || hit_rate != 0 ||
                   trunk_ms != 0 || explain || protection.any() || own;
  if (!nodes && any) {
    return UsageError(
        "--own, --copies, --placement, --explain, --out, --keep, --replace, --hit-rate, "
        "--trunk-ms, "
        "--tls and --insecure are about the nodes that --nodes names");
  }
  if (replace && !keep) {
    return UsageError("--replace is about the nodes of the plan that --keep names");
  }
  if (!(hit_rate >= 0 && hit_rate <= 1)) {
    return UsageError(absl::StrCat("--hit-rate ", hit_rate, ": 0 to 1 is accepted"));
  }
  constexpr double kMostTrunkMs = 3'600'000;
  if (!(trunk_ms >= 0 && trunk_ms <= kMostTrunkMs)) {
    return UsageError(absl::StrCat("--trunk-ms ", trunk_ms, ": 0 to 3600000 is accepted"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<NodeRates>> PlanPoolFlags::Rates(const Container& container,
                                                            Console& console) const {
  SHOAL_ASSIGN_OR_RETURN(const bool is_file, NodesAreFile(*nodes));
  std::vector<NodeRates> rates;
  if (is_file) {
    absl::StatusOr<std::vector<NodeRates>> read = ReadPoolSpec(*nodes);
    SHOAL_RETURN_IF_ERROR(Annotate(read.status(), "--nodes"));
    rates = *std::move(read);
  } else {
    std::vector<std::string> addresses = absl::StrSplit(*nodes, ',');
    SHOAL_RETURN_IF_ERROR(
        CheckNodeAddresses(addresses, "--nodes", protection.protection(), console));
    SHOAL_ASSIGN_OR_RETURN(const SecurityPtr identity, protection.tls.Load(console));
    SHOAL_ASSIGN_OR_RETURN(rates,
                           SurveyNodes(container.manifest(), addresses, identity, Clock::Real()));
  }
  if (own) {
    SHOAL_ASSIGN_OR_RETURN(NodeRates here, MeasureOwnRates(container, Clock::Real()));
    rates.push_back(std::move(here));
  }
  return rates;
}

std::optional<Placement> PlanPoolFlags::WantedPlacement() const {
  const std::string wanted = placement.value_or("auto");
  if (wanted == "auto") {
    return std::nullopt;
  }
  return wanted == "units" ? Placement::kUnits : Placement::kExperts;
}

absl::StatusOr<PoolProposals> PlanPoolFlags::Propose(const Manifest& manifest,
                                                     const std::vector<NodeRates>& rates,
                                                     const PlacementOptions& options) const {
  const std::optional<Placement> wanted = WantedPlacement();
  if (!wanted) {
    return ProposeFaster(manifest, rates, options);
  }
  SHOAL_ASSIGN_OR_RETURN(PoolProposal proposal, ProposePool(manifest, rates, *wanted, options));
  return PoolProposals{std::move(proposal), std::nullopt, absl::OkStatus()};
}

absl::StatusOr<Replan> PlanPoolFlags::ProposeKeeping(const Manifest& manifest,
                                                     const std::vector<NodeRates>& rates,
                                                     const ForecastOptions& forecast) const {
  SHOAL_ASSIGN_OR_RETURN(const PoolPlan kept, ReadPlan(*keep));
  absl::StatusOr<Replan> replan = ReplanPool(
      manifest, rates, kept,
      {.copies = copies, .placement = WantedPlacement(), .replace = replace, .forecast = forecast});
  SHOAL_RETURN_IF_ERROR(Annotate(replan.status(), absl::StrCat("--keep ", *keep)));
  return replan;
}

absl::Status PlanPoolFlags::Run(const Container& container, Console& console) const {
  const Manifest& manifest = container.manifest();
  SHOAL_ASSIGN_OR_RETURN(const std::vector<NodeRates> rates, Rates(container, console));
  PlacementOptions options;
  options.copies = copies.value_or(1);
  options.forecast = {hit_rate, absl::Milliseconds(trunk_ms)};
  if (!keep) {
    SHOAL_ASSIGN_OR_RETURN(const PoolProposals proposals, Propose(manifest, rates, options));
    return Report({manifest, rates, options, proposals, nullptr}, console);
  }
  SHOAL_ASSIGN_OR_RETURN(const Replan replan, ProposeKeeping(manifest, rates, options.forecast));
  options.copies = replan.copies;
  const PoolProposals proposals{replan.proposal, std::nullopt, absl::OkStatus()};
  return Report({manifest, rates, options, proposals, &replan}, console);
}

absl::Status PlanPoolFlags::Report(const PlacementReport& report, Console& console) const {
  if (out) {
    SHOAL_RETURN_IF_ERROR(Write(report.proposals.best.plan, *out));
  }
  if (console.json()) {
    console.PrintJson(PlacementJson(report));
    return absl::OkStatus();
  }
  console.Print(FormatPlacement(report));
  if (explain) {
    console.Print(ExplainPlacement(report));
  }
  if (out) {
    console.Print(
        absl::StrCat("\nThe plan is in ", *out,
                     ". Nothing was copied: `shoal shard`, or `shoal fill` where nodes are "
                     "empty, does that.\n"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

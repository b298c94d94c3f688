#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/fill_report.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/pool/pool_filler.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {
namespace {

class ClusterPlanCommand final : public Command {
 public:
  std::string name() const override { return "cluster plan"; }
  std::string summary() const override { return "Show the plan of a pool, or go over to another"; }
  std::string examples() const override {
    return "  shoal cluster plan > pool.json\n"
           "  shoal cluster plan --change-to new-pool.json\n"
           "  shoal cluster plan --change-to new-pool.json --fill\n"
           "The old plan serves until every node of the new one has what it is given; answers go "
           "on\nmeanwhile and do not change.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.Text("--change-to", "FILE", &next_,
               "Plan made by `shoal plan --out FILE`, with a larger epoch");
    flags.Switch(
        "--fill", &fill_,
        "First have the plan's empty nodes fetch their parts, from the\ncoordinator and from "
        "nodes that hold some");
    cluster_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterClient> client, cluster_.Client(console));
    if (next_.has_value()) {
      return Change(*client, console);
    }
    if (fill_) {
      return UsageError("--fill is about the nodes of the plan that --change-to names");
    }
    SHOAL_ASSIGN_OR_RETURN(const PoolPlan plan, client->Plan());
    if (plan.identity.empty()) {
      return absl::FailedPreconditionError(
          "this pool was given as a list of addresses and has no plan; `shoal plan --nodes ... "
          "--out "
          "FILE` makes one, for `shoal serve --nodes FILE`");
    }
    const std::string text = SerializePlan(plan);
    if (console.json()) {
      console.PrintJson(Json::parse(text));
    } else {
      console.Print(text);
    }
    return ExitCode::kOk;
  }

 private:
  absl::StatusOr<ExitCode> Change(ClusterClient& client, Console& console) {
    SHOAL_ASSIGN_OR_RETURN(const PoolPlan plan, ReadPlanOf("--change-to", *next_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    std::vector<FillingNode> filled;
    absl::Status changed;
    if (fill_) {
      changed = Fill(client, plan, filled, interrupt->token(), console);
    }
    if (changed.ok()) {
      changed = client.ChangePlan(plan, interrupt->token());
    }
    if (interrupt->requested() && absl::IsCancelled(changed)) {
      return absl::CancelledError(
          fill_
              ? "interrupted; the plan in force stays, nodes keep what they have fetched, and the "
                "same command goes on from there"
              : "interrupted; the plan in force stays");
    }
    SHOAL_RETURN_IF_ERROR(changed);
    if (console.json()) {
      Json json = {{"epoch", plan.epoch}, {"nodes", plan.nodes.size()}};
      if (fill_) {
        json["filled"] = FilledJson(filled);
      }
      console.PrintJson(json);
    } else {
      console.Print(absl::StrCat(FormatFilled(filled), "epoch ", plan.epoch, " is in force, with ",
                                 plan.nodes.size(), " nodes\n"));
    }
    return ExitCode::kOk;
  }

  // What would be refused afterwards is refused before anything is copied.
  absl::Status Fill(ClusterClient& client, PoolPlan plan, std::vector<FillingNode>& nodes,
                    const std::stop_token& stop, Console& console) const {
    SHOAL_ASSIGN_OR_RETURN(const PoolPlan in_force, client.Plan());
    if (plan.epoch <= in_force.epoch) {
      return absl::InvalidArgumentError(absl::StrCat("the plan has the epoch ", plan.epoch,
                                                     ", and the one in force has ", in_force.epoch,
                                                     ": a later plan has a larger one"));
    }
    SHOAL_RETURN_IF_ERROR(CheckPlanAddresses(plan, absl::StrCat("--change-to: ", *next_),
                                             cluster_.protection.protection(), console));
    const std::string at = cluster_.at.value_or(kDefaultClusterAddress);
    SHOAL_ASSIGN_OR_RETURN(const SecurityPtr own, cluster_.protection.tls.Load(console));
    SHOAL_ASSIGN_OR_RETURN(const LentModel model, AskModel(at, own, stop));
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, model.manifest));
    SHOAL_ASSIGN_OR_RETURN(nodes, LookAtNodes(model.manifest, plan, std::nullopt, own));
    if (const auto without = ChooseSources({}, NumericAddress(at).value_or(""), nodes)) {
      return UsageError(absl::StrCat("node ", *without,
                                     " is on another machine and could not reach the coordinator "
                                     "at ",
                                     at, ": say --at with its IP:PORT in the network"));
    }
    return FillWithProgress(model, nodes, kLentAtOnce, stop, console);
  }

  ClusterFlags cluster_;
  std::optional<std::string> next_;
  bool fill_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeClusterPlanCommand() { return std::make_unique<ClusterPlanCommand>(); }

}  // namespace shoal

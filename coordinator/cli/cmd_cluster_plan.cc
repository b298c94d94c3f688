#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/pool_flags.h"

namespace shoal {
namespace {

class ClusterPlanCommand final : public Command {
 public:
  std::string name() const override { return "cluster plan"; }
  std::string summary() const override { return "Show the plan of a pool, or go over to another"; }
  std::string examples() const override {
    return "  shoal cluster plan > pool.json\n"
           "  shoal cluster plan --change-to new-pool.json\n"
           "The old plan serves until every node of the new one has what it is given; answers go "
           "on\nmeanwhile and do not change.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.Text("--change-to", "FILE", &next_,
               "Plan made by `shoal plan --out FILE`, with a larger epoch");
    cluster_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterClient> client, cluster_.Client(console));
    if (next_.has_value()) {
      return Change(*client, console);
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
    const absl::Status changed = client.ChangePlan(plan, interrupt->token());
    if (interrupt->requested() && absl::IsCancelled(changed)) {
      return absl::CancelledError("interrupted; the plan in force stays");
    }
    SHOAL_RETURN_IF_ERROR(changed);
    if (console.json()) {
      console.PrintJson({{"epoch", plan.epoch}, {"nodes", plan.nodes.size()}});
    } else {
      console.Print(
          absl::StrCat("epoch ", plan.epoch, " is in force, with ", plan.nodes.size(), " nodes\n"));
    }
    return ExitCode::kOk;
  }

  ClusterFlags cluster_;
  std::optional<std::string> next_;
};

}  // namespace

std::unique_ptr<Command> MakeClusterPlanCommand() { return std::make_unique<ClusterPlanCommand>(); }

}  // namespace shoal

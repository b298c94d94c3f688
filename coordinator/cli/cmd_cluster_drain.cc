#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"

namespace shoal {
namespace {

class ClusterDrainCommand final : public Command {
 public:
  std::string name() const override { return "cluster drain"; }
  std::string summary() const override { return "Leave a node alone, so that it can be stopped"; }
  std::string examples() const override {
    return "  shoal cluster drain attic\n"
           "  shoal cluster drain attic --undo\n"
           "A drained node is asked only for what nobody else can compute.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("NODE", &node_, "Name of the node, as `shoal cluster status` has it");
    flags.Switch("--undo", &undo_, "Take it back");
    flags.Integer("--wait", &wait_seconds_, {0, 600},
                  "Seconds to wait for what it is computing (default 30)");
    cluster_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ClusterClient> client, cluster_.Client(console));
    SHOAL_RETURN_IF_ERROR(undo_ ? client->Undrain(node_)
                                : client->Drain(node_, absl::Seconds(wait_seconds_)));
    if (console.json()) {
      console.PrintJson({{"node", node_}, {"drained", !undo_}});
    } else {
      console.Print(absl::StrCat(
          node_, undo_ ? " is used again\n" : " has nothing more to do; it can be stopped\n"));
    }
    return ExitCode::kOk;
  }

 private:
  ClusterFlags cluster_;
  std::string node_;
  bool undo_ = false;
  int64_t wait_seconds_ = 30;
};

}  // namespace

std::unique_ptr<Command> MakeClusterDrainCommand() {
  return std::make_unique<ClusterDrainCommand>();
}

}  // namespace shoal

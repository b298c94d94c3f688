#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/tls/pool_authority.h"
#include "coordinator/cli/commands.h"

namespace shoal {
namespace {

class ClusterInitCommand final : public Command {
 public:
  std::string name() const override { return "cluster init"; }
  std::string summary() const override { return "Make the authority of a new pool"; }
  std::string examples() const override {
    return "  shoal cluster init ~/pool --name attic-and-cellar\n"
           "DIR/authority decides who is in the pool: whoever has it can let anybody in. Keep a "
           "copy "
           "of it\noffline. DIR/coordinator is what `shoal serve --tls` takes.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Where to make it; does not exist or is empty");
    flags.Text("--name", "POOL", &pool_, "Name of the pool (default pool)");
    flags.Text("--coordinator", "NAME", &coordinator_,
               "Name of its first coordinator (default coordinator)");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const std::string pool = pool_.value_or("pool");
    SHOAL_RETURN_IF_ERROR(
        InitPool(directory_, pool, coordinator_.value_or("coordinator"), absl::Now()));
    const std::string identity = absl::StrCat(directory_, "/coordinator");
    if (console.json()) {
      console.PrintJson({{"pool", pool},
                         {"authority", absl::StrCat(directory_, "/authority")},
                         {"coordinator", identity}});
    } else {
      console.Print(absl::StrCat("pool ", pool, ": its authority is in ", directory_,
                                 "/authority, which nobody else may have\nserve it with --tls ",
                                 identity, "; let machines in with `shoal cluster invite`\n"));
    }
    return ExitCode::kOk;
  }

 private:
  std::string directory_;
  std::optional<std::string> pool_;
  std::optional<std::string> coordinator_;
};

}  // namespace

std::unique_ptr<Command> MakeClusterInitCommand() { return std::make_unique<ClusterInitCommand>(); }

}  // namespace shoal

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/tls/pool_authority.h"
#include "coordinator/cli/commands.h"

namespace shoal {
namespace {

class ClusterRevokeCommand final : public Command {
 public:
  std::string name() const override { return "cluster revoke"; }
  std::string summary() const override { return "Put a machine or program out of the pool"; }
  std::string examples() const override {
    return "  shoal cluster revoke ~/pool attic\n"
           "`shoal serve --tls DIR/coordinator` notices within a second, cuts what is open and "
           "tells "
           "the\nnodes. Elsewhere, copy DIR/authority/revoked.pem into the identity's directory.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "What `shoal cluster init` made");
    flags.RequiredArgument("NAME", &name_, "Whose certificates; of whatever role");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PoolAuthority> authority,
                           PoolAuthority::Open(directory_));
    SHOAL_ASSIGN_OR_RETURN(const int count, authority->Revoke(name_, absl::Now()));
    if (console.json()) {
      console.PrintJson({{"name", name_}, {"certificates", count}});
    } else {
      console.Print(absl::StrCat(count, count == 1 ? " certificate of " : " certificates of ",
                                 name_, " revoked\n"));
    }
    return ExitCode::kOk;
  }

 private:
  std::string directory_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Command> MakeClusterRevokeCommand() {
  return std::make_unique<ClusterRevokeCommand>();
}

}  // namespace shoal

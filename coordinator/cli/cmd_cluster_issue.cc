#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/tls/pool_authority.h"
#include "coordinator/cli/commands.h"

namespace shoal {
namespace {

class ClusterIssueCommand final : public Command {
 public:
  std::string name() const override { return "cluster issue"; }
  std::string summary() const override { return "Make an identity here, to be carried elsewhere"; }
  std::string examples() const override {
    return "  shoal cluster issue ~/pool notebook --role client --out notebook\n"
           "The directory has a private key: move it on a way that nobody else can read. For "
           "nodes\n"
           "`shoal cluster invite` is better: there the key never leaves the node.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "What `shoal cluster init` made");
    flags.RequiredArgument("NAME", &name_, "Of the machine or program");
    flags.Choice("--role", {"client", "node", "coordinator"}, &role_,
                 "What it may do (default client)");
    flags.Text("--out", "DIR", &out_, "Where to put the identity (default NAME)");
    flags.Integer("--days", &days_, {1, 3650}, "How long it is valid (default 730)");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    const absl::Time now = absl::Now();
    const std::string out = out_.value_or(name_);
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PoolAuthority> authority,
                           PoolAuthority::Open(directory_));
    const TlsRole role = ParseTlsRole(role_.value_or("client")).value_or(TlsRole::kClient);
    SHOAL_RETURN_IF_ERROR(CheckIdentityPlace(out));
    SHOAL_ASSIGN_OR_RETURN(
        const Identity identity,
        authority->IssueIdentity(role, name_, ValidFor(now, absl::Hours(24 * days_)), now));
    SHOAL_RETURN_IF_ERROR(StoreIdentity(out, identity));
    const std::string until =
        absl::FormatTime("%Y-%m-%d", identity.certificate.not_after, absl::UTCTimeZone());
    if (console.json()) {
      console.PrintJson({{"directory", out},
                         {"role", std::string(TlsRoleName(role))},
                         {"name", name_},
                         {"fingerprint", identity.certificate.fingerprint},
                         {"not_after", until}});
    } else {
      console.Print(
          absl::StrCat(identity.certificate.Who(), ": ", out, ", valid until ", until, "\n"));
    }
    return ExitCode::kOk;
  }

 private:
  std::string directory_;
  std::string name_;
  std::optional<std::string> role_;
  std::optional<std::string> out_;
  int64_t days_ = 730;
};

}  // namespace

std::unique_ptr<Command> MakeClusterIssueCommand() {
  return std::make_unique<ClusterIssueCommand>();
}

}  // namespace shoal

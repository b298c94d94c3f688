#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/container/slice_json.h"
#include "common/status/status_macros.h"
#include "common/tls/invites.h"
#include "common/tls/pool_authority.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/service/join_server.h"
#include "expert_node/service/listen_address.h"

namespace shoal {
namespace {

constexpr char kInvitesFile[] = "invites.json";
constexpr absl::Duration kLongest = absl::Hours(24);

struct Invited {
  std::string name;
  std::string code;
};

class ClusterInviteCommand final : public Command {
 public:
  std::string name() const override { return "cluster invite"; }
  std::string summary() const override { return "Let new nodes into the pool, once each"; }
  std::string examples() const override {
    return "  shoal cluster invite ~/pool attic,cellar --listen 192.168.1.5:7072\n"
           "It prints a line for each node, to be typed there, and listens until all have joined "
           "or "
           "the time\nis over. The line makes the node's identity; `shoal-node DIR --tls "
           "NAME.identity` serves with it. Who\nreads a line before it is used can join in the "
           "node's place.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "What `shoal cluster init` made");
    flags.RequiredArgument("NAMES", &names_,
                           "Of the nodes, as the pool's plan calls them: NAME,NAME,...");
    flags.Text("--listen", "IP:PORT", &listen_,
               "Where the nodes reach this machine (default 127.0.0.1:7072)");
    flags.Text("--expires", "TIME", &expires_, "How long it listens, like 10m or 2h (default 10m)");
    flags.Integer("--days", &days_, {1, 3650}, "How long the certificates are valid (default 730)");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    JoinServer::Options options;
    absl::Duration open_for;
    SHOAL_RETURN_IF_ERROR(CheckFlags(options, open_for));
    options.log = [&console](absl::string_view line) {
      console.Note(absl::StrCat("shoal: ", line));
    };
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PoolAuthority> authority,
                           PoolAuthority::Open(directory_));
    SHOAL_ASSIGN_OR_RETURN(Invites invites,
                           Invites::Open(absl::StrCat(authority->path(), "/", kInvitesFile)));
    SHOAL_RETURN_IF_ERROR(CheckNames(*authority));
    SHOAL_RETURN_IF_ERROR(invites.CloseAll(absl::Now()));  // of a listener that was killed
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<JoinServer> server,
                           JoinServer::Start(*authority, invites, std::move(options)));
    SHOAL_ASSIGN_OR_RETURN(const std::string fingerprint,
                           FingerprintOf(authority->authority().certificate_pem()));
    std::vector<Invited> invited;
    invited.reserve(wanted_.size());
    for (const std::string& name : wanted_) {
      SHOAL_ASSIGN_OR_RETURN(std::string secret, server->Invite(name, absl::Now() + open_for));
      invited.push_back(
          {name,
           InviteCode{server->address().ToString(), fingerprint, std::move(secret)}.ToString()});
    }
    Announce(invited, server->address().ToString(), console);
    SHOAL_RETURN_IF_ERROR(server->Wait(interrupt->token()));
    return ExitCode::kOk;
  }

 private:
  absl::Status CheckFlags(JoinServer::Options& options, absl::Duration& open_for) {
    wanted_ = absl::StrSplit(names_, ',');
    for (const std::string& name : wanted_) {
      if (const absl::Status good = CheckNodeName(name, "NAMES"); !good.ok()) {
        return UsageError(std::string(good.message()));
      }
      if (std::count(wanted_.begin(), wanted_.end(), name) > 1) {
        return UsageError(absl::StrCat("NAMES: ", name, " is there twice"));
      }
    }
    const absl::StatusOr<NetAddress> address =
        ParseListenAddress(listen_.value_or("127.0.0.1:7072"));
    if (!address.ok()) {
      return UsageError(absl::StrCat("--listen: ", address.status().message()));
    }
    if (address->host == "0.0.0.0" || address->host == "::") {
      return UsageError("--listen: name the address by which the nodes reach this machine");
    }
    if (!absl::ParseDuration(expires_.value_or("10m"), &open_for) ||
        open_for <= absl::ZeroDuration() || open_for > kLongest) {
      return UsageError(
          absl::StrCat("--expires ", *expires_, ": a time like 10m is accepted, up to 24h"));
    }
    options.address = *address;
    options.certificate_validity = absl::Hours(24 * days_);
    return absl::OkStatus();
  }

  absl::Status CheckNames(const PoolAuthority& authority) const {
    for (const IssuedCertificate& other : authority.issued()) {
      for (const std::string& name : wanted_) {
        if (other.role == TlsRole::kNode && other.name == name && !other.revoked &&
            other.not_after > absl::Now()) {
          return absl::AlreadyExistsError(
              absl::StrCat("node ", name,
                           " is in the pool already; `shoal cluster revoke` it first, or invite "
                           "another name"));
        }
      }
    }
    return absl::OkStatus();
  }

  static void Announce(const std::vector<Invited>& invited, const std::string& where,
                       Console& console) {
    if (console.json()) {
      Json json = {{"listening_on", where}, {"invites", Json::array()}};
      for (const Invited& one : invited) {
        json["invites"].push_back({{"name", one.name}, {"code", one.code}});
      }
      console.PrintJson(json);
      return;
    }
    std::string text;
    for (const Invited& one : invited) {
      absl::StrAppend(&text, "on ", one.name, ":\n  shoal-node --join ", one.code, " --tls ",
                      one.name, ".identity\n");
    }
    console.Print(text);
  }

  std::string directory_;
  std::string names_;
  std::optional<std::string> listen_;
  std::optional<std::string> expires_;
  int64_t days_ = 730;
  std::vector<std::string> wanted_;
};

}  // namespace

std::unique_ptr<Command> MakeClusterInviteCommand() {
  return std::make_unique<ClusterInviteCommand>();
}

}  // namespace shoal

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/end_signals.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/tls_flags.h"
#include "coordinator/service/cluster_service.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/units_server.h"

namespace shoal {
namespace {

// A plan of 256 nodes with as many slices as it may have is far below this.
constexpr int64_t kMaxRequestBytes = int64_t{1} << 20;

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "Keep a model and its pool ready for others"; }
  std::string examples() const override {
    return "  shoal serve ~/models/kimi-linear --nodes pool.json\n"
           "  shoal serve ~/models/kimi-linear --nodes 127.0.0.1:7101,127.0.0.1:7102 --listen "
           "127.0.0.1:0 --json\n"
           "  shoal cluster status\n"
           "It says `listening on HOST:PORT` once it is ready. SIGTERM or Ctrl-C ends it. Empty "
           "nodes can "
           "be\nfilled from it: `shoal fill DIR --plan pool.json --from HOST:PORT`.";
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    flags.Text("--listen", "ADDRESS", &listen_,
               absl::StrCat("Where to listen, IP:PORT; port 0 takes a free one\n(default ",
                            kDefaultClusterAddress, ")"));
    model_flags_.AddOptions(flags);
    server_flags_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    EndSignals signals;
    std::optional<EndAtOnce> opening(signals);
    model_flags_.resident = true;
    model_flags_.pool.listens = true;
    const ProtectionFlags& protection = model_flags_.pool.protection;
    SHOAL_ASSIGN_OR_RETURN(const NetAddress address, ListenAddress());
    SHOAL_ASSIGN_OR_RETURN(
        const ServerSecurity security,
        server_flags_.Security(protection.tls, address, protection.insecure, console));
    SHOAL_RETURN_IF_ERROR(CheckCanListen(address));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           OpenModel(model_flags_, kDefaultContextTokens, console));
    ClusterService service(*model, {.beyond_loopback = protection.any(), .own = security.own},
                           Clock::Real());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<UnitsService> units, Units(*model, security.own));
    std::vector<grpc::Service*> services = {&service.grpc_service()};
    std::vector<std::string> names = {"shoal.v1.Cluster"};
    if (units != nullptr) {
      services.push_back(&units->grpc_service());
      names.emplace_back("shoal.v1.ExpertNode");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                           GrpcServer::Start(services, {.address = address,
                                                        .max_request_bytes = kMaxRequestBytes,
                                                        .health_names = names,
                                                        .security = security}));
    opening.reset();
    Announce(*model, server->address().ToString(), console);
    signals.Wait();
    console.Note("shoal: ending; what is under way is given up");
    server->StopServing();
    service.Stop();
    if (units != nullptr) {
      units->Drain();
    }
    server->Shutdown();
    return ExitCode::kOk;
  }

 private:
  // What lends the container's experts to nodes that are filled; null for a model without.
  static absl::StatusOr<std::unique_ptr<UnitsService>> Units(const Model& model,
                                                             const SecurityPtr& own) {
    if (model.config().num_moe_layers() == 0) {
      return nullptr;
    }
    UnitsService::Options options;
    options.max_copies = kLentAtOnce;
    options.own = own;
    return UnitsService::Create(model.container(), options);
  }

  absl::StatusOr<NetAddress> ListenAddress() const {
    absl::StatusOr<NetAddress> address =
        ParseListenAddress(listen_.value_or(kDefaultClusterAddress));
    if (!address.ok()) {
      return UsageError(absl::StrCat("--listen: ", address.status().message()));
    }
    return address;
  }

  static void Announce(const Model& model, const std::string& where, Console& console) {
    if (!console.json()) {
      console.Print(absl::StrCat("listening on ", where, "\n"));
      return;
    }
    Json json;
    json["listening_on"] = where;
    json["identity"] = model.container().manifest().identity;
    AddModelFields(model, json);
    console.PrintJson(json);
  }

  ModelFlags model_flags_;
  ServerFlags server_flags_;
  std::optional<std::string> listen_;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace shoal

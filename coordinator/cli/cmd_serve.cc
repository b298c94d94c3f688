#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/prometheus_text.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/end_signals.h"
#include "common/sync/service_manager.h"
#include "coordinator/cli/cluster_flags.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/inference_flags.h"
#include "coordinator/cli/metrics_flags.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/tls_flags.h"
#include "coordinator/service/cluster_service.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/serve_metrics.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/server_security.h"
#include "expert_node/service/units_server.h"

namespace shoal {
namespace {

// A plan of 256 nodes with as many slices as it may have is far below this.
constexpr int64_t kMaxPlanBytes = int64_t{1} << 20;
// For the last words of answers that are cut.
constexpr absl::Duration kLastWords = absl::Seconds(1);

class ServeCommand final : public Command {
 public:
  std::string name() const override { return "serve"; }
  std::string summary() const override { return "Answer programs, and keep a pool ready"; }
  std::string examples() const override {
    return "  shoal serve ~/models/kimi-linear --sessions 2\n"
           "  shoal serve ~/models/kimi-linear --nodes pool.json\n"
           "  shoal serve ~/models/kimi-linear --nodes 127.0.0.1:7101,127.0.0.1:7102 --listen "
           "127.0.0.1:0 --json\n"
           "  shoal cluster status\n"
           "It says `listening on HOST:PORT` once it is ready, and answers the gRPC service "
           "shoal.v1.Inference.\nSIGTERM or Ctrl-C ends it when running answers are done, a second "
           "one "
           "at once. Empty nodes can be\nfilled from it: `shoal fill DIR --plan pool.json --from "
           "HOST:PORT`.";
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    flags.Text("--listen", "ADDRESS", &listen_,
               absl::StrCat("Where to listen, IP:PORT; port 0 takes a free one\n(default ",
                            kDefaultClusterAddress, ")"));
    metrics_flags_.Add(flags);
    inference_flags_.Add(flags);
    model_flags_.AddOptions(flags);
    server_flags_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    EndSignals signals;
    std::optional<EndAtOnce> opening(signals);
    const ProtectionFlags& protection = model_flags_.pool.protection;
    SHOAL_ASSIGN_OR_RETURN(InferenceService::Options inference_options,
                           inference_flags_.Options(model_flags_.directory));
    SHOAL_ASSIGN_OR_RETURN(const NetAddress address, ListenAddress());
    SHOAL_ASSIGN_OR_RETURN(
        const ServerSecurity security,
        server_flags_.Security(protection.tls, address, protection.insecure, console));
    SHOAL_RETURN_IF_ERROR(CheckCanListen(address));
    inference_options.caller = [security, address](const grpc::ServerContextBase& call) {
      return OriginOf(call, security, address).limit_name;
    };
    SHOAL_ASSIGN_OR_RETURN(const std::optional<NetAddress> metrics_address,
                           metrics_flags_.Address(protection.insecure));
    PlanMemoryOfServices(inference_options);
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           OpenModel(model_flags_, kDefaultContextTokens, console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<InferenceService> inference,
                           InferenceService::Create(*model, inference_options, Clock::Real()));
    ClusterService cluster(*model, {.beyond_loopback = protection.any(), .own = security.own},
                           Clock::Real());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<UnitsService> units, Units(*model, security.own));
    std::vector<grpc::Service*> services = {&inference->grpc_service(), &cluster.grpc_service()};
    std::vector<std::string> names = {
        "shoal.v1.Inference", absl::StrCat("shoal.v1.Inference/", inference_options.model_name),
        "shoal.v1.Cluster"};
    if (units != nullptr) {
      services.push_back(&units->grpc_service());
      names.emplace_back("shoal.v1.ExpertNode");
    }
    SHOAL_ASSIGN_OR_RETURN(
        const std::unique_ptr<GrpcServer> server,
        GrpcServer::Start(
            services, {.address = address,
                       .max_request_bytes = std::max(kMaxPlanBytes, inference->MaxRequestBytes()),
                       .health_names = names,
                       .security = security,
                       .limits = {.calls = InferenceService::Limits(inference_options),
                                  .message_bytes = model_flags_.client_bytes - kConnectionBytes +
                                                   (units == nullptr ? 0 : units->MessageBytes())},
                       .watched_by_service = {{CallKind::kAnswer, [&inference](ServerGuard& guard) {
                                                 inference->SetGuard(guard);
                                               }}}}));
    SHOAL_ASSIGN_OR_RETURN(
        const std::unique_ptr<MetricsServer> metrics,
        StartMetrics(
            metrics_address, [&] { return Metrics(*model, *inference); }, console));
    opening.reset();
    Announce(*model, inference_options, server->address().ToString(), metrics.get(), console);
    TellServiceManager("READY=1");
    signals.Wait();
    TellServiceManager("STOPPING=1");
    server->StopServing();
    DrainAnswers(*inference, console);
    cluster.Stop();
    if (units != nullptr) {
      units->Drain();
    }
    server->Shutdown();
    return ExitCode::kOk;
  }

 private:
  // What the services take beside the model.
  void PlanMemoryOfServices(const InferenceService::Options& inference) {
    model_flags_.resident = true;
    model_flags_.pool.listens = true;
    // A drill answers too, beside the clients.
    model_flags_.num_sessions =
        static_cast<int>(inference_flags_.num_sessions) + (model_flags_.pool.nodes ? 1 : 0);
    model_flags_.client_bytes =
        kConnectionBytes +
        InferenceService::MemoryBytes(inference,
                                      model_flags_.context_tokens.value_or(kDefaultContextTokens));
  }

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

  void DrainAnswers(InferenceService& inference, Console& console) const {
    console.Note(absl::StrCat("shoal: draining: answers that are computed may take ",
                              inference_flags_.drain_time_s,
                              " s more; a second signal ends them now"));
    inference.Drain();
    if (!inference.WaitUntilDrained(absl::Seconds(inference_flags_.drain_time_s))) {
      console.Note("shoal: ending; what is under way is given up");
      inference.Stop();
      inference.WaitUntilDrained(kLastWords);
    }
  }

  static std::string Metrics(Model& model, InferenceService& inference) {
    PrometheusText text;
    AppendModelMetrics(model, text);
    inference.AppendMetrics(text);
    return text.Take();
  }

  static void Announce(const Model& model, const InferenceService::Options& inference,
                       const std::string& where, const MetricsServer* metrics, Console& console) {
    if (!console.json()) {
      console.Print(absl::StrCat("listening on ", where, "\n"));
      return;
    }
    Json json;
    json["listening_on"] = where;
    json["identity"] = model.container().manifest().identity;
    json["model"] = inference.model_name;
    json["sessions"] = inference.num_sessions;
    json["queue"] = inference.max_waiting;
    if (metrics != nullptr) {
      json["metrics_on"] = metrics->address().ToString();
    }
    AddModelFields(model, json);
    console.PrintJson(json);
  }

  ModelFlags model_flags_;
  InferenceFlags inference_flags_;
  MetricsFlags metrics_flags_;
  ServerFlags server_flags_;
  std::optional<std::string> listen_;
};

}  // namespace

std::unique_ptr<Command> MakeServeCommand() { return std::make_unique<ServeCommand>(); }

}  // namespace shoal

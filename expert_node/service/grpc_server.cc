#include "expert_node/service/grpc_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>

#include <chrono>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/stop_wait.h"
#include "expert_node/service/connection_gate.h"
#include "expert_node/service/grpc_log.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/membership_service.h"

namespace shoal {
namespace {

// No client of ours sends metadata of its own.
constexpr int kMetadataBytes = 8 * 1024;
// A peer that vanished without a word is noticed after their sum.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kMaxIdleMs = 600'000;
// Clients may ask as often, and half of it more to be safe from jitter.
constexpr int kLeastPingIntervalMs = 5'000;
// For TLS, and for the beginning of HTTP/2.
constexpr int kHandshakeMs = 10'000;
// Of one connection.
constexpr int kMostStreams = 100;
// For what is no Execute stream: those of health watchers never end by themselves.
constexpr std::chrono::milliseconds kLastWords{100};
constexpr absl::Duration kLookAtCalls = absl::Milliseconds(500);

void SetArguments(grpc::ServerBuilder& builder, const GrpcServer::Options& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  builder.SetResourceQuota(
      grpc::ResourceQuota("shoal").Resize(kConnectionBytes + options.limits.message_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // Not without calls: some clients (gRPC's for Python) read nothing between two calls, pings included, and would find
  // their connection cut at the next. One that has no call for long is closed, and they make another.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kLeastPingIntervalMs);
}

}  // namespace

struct GrpcServer::Impl {
  NetAddress address;
  std::unique_ptr<ServerGuard> guard = {};
  std::unique_ptr<GrpcLogTap> tap = {};
  std::unique_ptr<MembershipService> membership = {};  // with TLS
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor = {};
  std::unique_ptr<ConnectionGate> gate = {};
  std::unique_ptr<grpc::Server> server = {};
  std::jthread tender = {};  // last: uses the guard

  // Prepares what protects the server.
  void Guard(const Options& options, grpc::ServerBuilder& builder) {
    guard = std::make_unique<ServerGuard>(options.security, options.limits, options.address);
    tap = std::make_unique<GrpcLogTap>(guard->log());
    if (options.security.own != nullptr) {
      membership = std::make_unique<MembershipService>(options.security.own);
      builder.RegisterService(&membership->grpc_service());
    }
    std::set<CallKind> watched_by_service;
    for (const auto& [kind, tell] : options.watched_by_service) {
      watched_by_service.insert(kind);
      tell(*guard);
    }
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(guard->MakeInterceptors(std::move(watched_by_service)));
    builder.experimental().SetInterceptorCreators(std::move(creators));
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        guard->MakeCredentials());
  }
  // From here on connections come in.
  absl::Status OpenGate(UniqueFd listener, const ConnectionGate::Options& options) {
    SHOAL_ASSIGN_OR_RETURN(gate, ConnectionGate::Start(std::move(listener), options,
                                                       HandOverTo(*acceptor), &guard->log()));
    guard->SetGate(gate.get());
    tender = std::jthread([this](const std::stop_token& stop) {
      while (WaitUnlessStopped(kLookAtCalls, stop).ok()) {
        guard->Tend();
      }
    });
    return absl::OkStatus();
  }
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::vector<grpc::Service*>& services, const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->address = options.address;
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(impl->address));
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
  grpc::ServerBuilder builder;
  SetArguments(builder, options);
  impl->Guard(options, builder);
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return absl::UnavailableError(absl::StrCat("listen on ", impl->address.ToString(),
                                               ": gRPC could not start its server there"));
  }
  grpc::HealthCheckServiceInterface& health = *impl->server->GetHealthCheckService();
  health.SetServingStatus("", options.serving);
  for (const std::string& name : options.health_names) {
    health.SetServingStatus(name, options.serving);
  }
  SHOAL_RETURN_IF_ERROR(impl->OpenGate(std::move(listener), options.limits.connections));
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

std::function<void(int fd)> HandOverTo(grpc::experimental::ExternalConnectionAcceptor& acceptor) {
  return [&acceptor](int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection;
    acceptor.HandleNewConnection(&parameters);
  };
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() {
  impl_->gate->Close();
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
}

const NetAddress& GrpcServer::address() const { return impl_->address; }

void GrpcServer::StopServing() { impl_->server->GetHealthCheckService()->Shutdown(); }

void GrpcServer::Shutdown() {
  impl_->gate->Close();
  impl_->server->Shutdown(std::chrono::system_clock::now() + kLastWords);
}

}  // namespace shoal

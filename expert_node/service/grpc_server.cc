#include "expert_node/service/grpc_server.h"

#include <grpcpp/ext/channelz_service_plugin.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_interceptor.h>

#include <chrono>
#include <stop_token>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/stop_wait.h"
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
// For what is no Execute stream: those of health watchers never end by themselves.
constexpr std::chrono::milliseconds kLastWords{100};
constexpr absl::Duration kLookForRevocations = absl::Milliseconds(500);

void SetArguments(grpc::ServerBuilder& builder, int64_t max_request_bytes) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(max_request_bytes));
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytes);
  // Two nodes on one port would each get some of the connections.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
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
  std::unique_ptr<ServerGuard> guard = {};  // null where every caller may call everything
  std::unique_ptr<GrpcLogTap> tap = {};     // with the guard
  std::unique_ptr<MembershipService> membership = {};  // with TLS
  std::unique_ptr<grpc::Server> server = {};
  std::jthread tender = {};  // last: uses the guard

  std::shared_ptr<grpc::ServerCredentials> Guard(const ServerSecurity& security,
                                                 grpc::ServerBuilder& builder) {
    if (!security.any()) {
      return grpc::InsecureServerCredentials();
    }
    guard = std::make_unique<ServerGuard>(security);
    tap = std::make_unique<GrpcLogTap>(guard->log());
    std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> creators;
    creators.push_back(guard->MakeInterceptors());
    if (security.own != nullptr) {
      membership = std::make_unique<MembershipService>(security.own);
      builder.RegisterService(&membership->grpc_service());
    }
    builder.experimental().SetInterceptorCreators(std::move(creators));
    return guard->MakeCredentials();
  }
  void BeginTending() {
    if (guard != nullptr) {
      tender = std::jthread([this](const std::stop_token& stop) {
        while (WaitUnlessStopped(kLookForRevocations, stop).ok()) {
          guard->Tend();
        }
      });
    }
  }
};

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(
    const std::vector<grpc::Service*>& services, const Options& options) {
  SHOAL_RETURN_IF_ERROR(CheckCanListen(options.address));
  auto impl = std::make_unique<Impl>();
  impl->address = options.address;
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::channelz::experimental::InitChannelzService();
  grpc::ServerBuilder builder;
  SetArguments(builder, options.max_request_bytes);
  int port = 0;
  builder.AddListeningPort(options.address.ToString(), impl->Guard(options.security, builder),
                           &port);
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat("listen on ", options.address.ToString(),
                                               ": gRPC could not start its server there"));
  }
  impl->address.port = static_cast<uint16_t>(port);
  impl->BeginTending();
  grpc::HealthCheckServiceInterface& health = *impl->server->GetHealthCheckService();
  health.SetServingStatus("", options.serving);
  for (const std::string& name : options.health_names) {
    health.SetServingStatus(name, options.serving);
  }
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

GrpcServer::~GrpcServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
}

const NetAddress& GrpcServer::address() const { return impl_->address; }

void GrpcServer::StopServing() { impl_->server->GetHealthCheckService()->Shutdown(); }

void GrpcServer::Shutdown() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + kLastWords);
}

}  // namespace shoal

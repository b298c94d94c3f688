#include "expert_node/service/node_server.h"

#include <utility>
#include <vector>

#include "common/status/status_macros.h"
#include "expert_node/service/grpc_server.h"

namespace shoal {

struct NodeServer::Impl {
  NodeService& service;
  std::unique_ptr<GrpcServer> server;
};

absl::StatusOr<std::unique_ptr<NodeServer>> NodeServer::Start(NodeService& service,
                                                              const NetAddress& address,
                                                              DrillService* drill,
                                                              const ServerSecurity& security,
                                                              const StreamPatience& patience) {
  std::vector<grpc::Service*> services = {&service.grpc_service()};
  if (drill != nullptr) {
    services.push_back(&drill->grpc_service());
  }
  SHOAL_ASSIGN_OR_RETURN(
      auto server,
      GrpcServer::Start(
          services, {.address = address,
                     .max_request_bytes = service.MaxRequestBytes(),
                     .health_names = service.HealthNames(),
                     .security = security,
                     .limits = {.calls = service.Limits(),
                                .patience = patience,
                                .message_bytes = service.MessageBytes()},
                     .watched_by_service = {{CallKind::kExecute, [&service](ServerGuard& guard) {
                                               service.SetGuard(guard);
                                             }}}}));
  return std::unique_ptr<NodeServer>(
      new NodeServer(std::make_unique<Impl>(Impl{service, std::move(server)})));
}

NodeServer::NodeServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeServer::~NodeServer() = default;

const NetAddress& NodeServer::address() const { return impl_->server->address(); }

bool NodeServer::Drain(absl::Duration grace) {
  impl_->server->StopServing();
  impl_->service.Drain();
  const bool drained = impl_->service.WaitUntilDrained(grace);
  impl_->server->Shutdown();
  return drained;
}

}  // namespace shoal

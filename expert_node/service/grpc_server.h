// A gRPC server, with standard health, reflection and channelz: what every program
// that others reach has in common.
#ifndef SHOAL_EXPERT_NODE_SERVICE_GRPC_SERVER_H_
#define SHOAL_EXPERT_NODE_SERVICE_GRPC_SERVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "expert_node/service/call_limits.h"
#include "expert_node/service/server_security.h"

namespace grpc {
class Service;
namespace experimental {
class ExternalConnectionAcceptor;
}  // namespace experimental
}  // namespace grpc

namespace shoal {

class GrpcServer {
 public:
  struct Options {
    NetAddress address;             // ParseListenAddress's
    int64_t max_request_bytes = 0;  // the largest message a client may send
    // Services whose health can be asked for, beside that of "".
    std::vector<std::string> health_names = {"shoal.v1.ExpertNode"};
    bool serving = true;           // health is SERVING, or NOT_SERVING
    ServerSecurity security = {};  // none: plain text, and every caller may call everything
    ServerLimits limits = {};
    // Kinds of calls that a service has a CallWatch of its own for, and who tells it of the guard, which
    // is there as long as the server. For streams of many messages: gRPC (1.51) sends each one of
    // a call that is watched from its side through a queue once more.
    std::map<CallKind, std::function<void(ServerGuard& guard)>> watched_by_service = {};
  };
  // Listens. The services, none of them null, outlive the server. Switches on gRPC's
  // health service and reflection for every server that the process makes later; not thread-safe
  // because of that.
  //   CheckCanListen's errors
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::vector<grpc::Service*>& services, const Options& options);
  // Cuts what is still open.
  ~GrpcServer();

  // With the port that the system chose where 0 was asked for.
  const NetAddress& address() const;

  // Health becomes NOT_SERVING, for good.
  void StopServing();
  // Takes no new call, and cuts what is open after a moment for last words. Returns when nothing
  // is.
  void Shutdown();

 private:
  struct Impl;
  explicit GrpcServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// For a ConnectionGate: gives connections to gRPC. `acceptor` outlives it.
std::function<void(int fd)> HandOverTo(grpc::experimental::ExternalConnectionAcceptor& acceptor);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_GRPC_SERVER_H_

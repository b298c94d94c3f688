// A gRPC server with the service ExpertNode, standard health, reflection and channelz.
#ifndef SHOAL_EXPERT_NODE_SERVICE_NODE_SERVER_H_
#define SHOAL_EXPERT_NODE_SERVICE_NODE_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "expert_node/service/drill_service.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/server_security.h"

namespace shoal {

class NodeServer {
 public:
  // Listens, protected as `security` says. The health of "" and of NodeService::HealthNames is SERVING: call it when
  // the node is ready. `service` outlives the server. Switches on gRPC's health service and
  // reflection for every server that the process makes later; not thread-safe because of that.
  // `drill` (may be null) is served beside it, and outlives the server too.
  //   CheckCanListen's errors
  static absl::StatusOr<std::unique_ptr<NodeServer>> Start(NodeService& service,
                                                           const NetAddress& address,
                                                           DrillService* drill = nullptr,
                                                           const ServerSecurity& security = {},
                                                           const StreamPatience& patience = {});
  // Cuts what is still open.
  ~NodeServer();

  // With the port that the system chose where 0 was asked for.
  const NetAddress& address() const;

  // Health becomes NOT_SERVING, streams end after what they have been asked (NodeService::Drain),
  // and what is open after `grace` is cut. Returns when nothing is open. True where nothing was
  // cut off an Execute stream.
  bool Drain(absl::Duration grace);

 private:
  struct Impl;
  explicit NodeServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_NODE_SERVER_H_

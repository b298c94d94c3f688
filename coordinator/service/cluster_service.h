// The gRPC service Cluster (proto/shoal/v1/cluster.proto, docs/protocol.md): a resident model's pool
// for the people who run it.
#ifndef SHOAL_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_
#define SHOAL_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_

#include <memory>

#include "common/sync/clock.h"
#include "coordinator/model.h"
#include "expert_node/service/transport_security.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shoal {

// Thread-safe.
class ClusterService {
 public:
  struct Options {
    bool beyond_loopback = false;  // a plan may name nodes on other machines
    SecurityPtr own = {};          // as ChannelSecurity's
  };

  // `model` and `clock` outlive the service, which outlives the server that it is registered with.
  ClusterService(Model& model, const Options& options, const Clock& clock);
  ~ClusterService();

  // For ServerBuilder::RegisterService; the service's.
  grpc::Service& grpc_service();

  // Ends drills and changes of plan that are under way, and refuses new ones.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_CLUSTER_SERVICE_H_

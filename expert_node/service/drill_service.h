// The gRPC service Drill (proto/shoal/v1/drill.proto): faults on purpose, for who was allowed them.
#ifndef SHOAL_EXPERT_NODE_SERVICE_DRILL_SERVICE_H_
#define SHOAL_EXPERT_NODE_SERVICE_DRILL_SERVICE_H_

#include <functional>
#include <memory>
#include <string>

#include "expert_node/drill/node_drills.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shoal {

// Thread-safe.
class DrillService {
 public:
  struct Options {
    // Gets a line about every drill that begins or ends; may be empty.
    std::function<void(const std::string&)> note = {};
    // Ends the process; tests give their own.
    std::function<void()> kill = KillProcess;
  };
  // SIGKILL, to this process.
  static void KillProcess();

  // `drills` outlives the service, which outlives the server that it is registered with.
  DrillService(NodeDrills& drills, Options options);
  ~DrillService();

  // For ServerBuilder::RegisterService; the service's.
  grpc::Service& grpc_service();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_DRILL_SERVICE_H_

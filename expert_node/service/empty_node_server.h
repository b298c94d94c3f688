// The service of a node that holds nothing yet: it can be described and filled.
#ifndef SHOAL_EXPERT_NODE_SERVICE_EMPTY_NODE_SERVER_H_
#define SHOAL_EXPERT_NODE_SERVICE_EMPTY_NODE_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "expert_node/fill/partition_filler.h"
#include "expert_node/service/server_security.h"

namespace shoal {

class EmptyNodeServer {
 public:
  struct Options {
    FillOptions fill;
    NetAddress address;
    uint64_t read_bytes_per_second = 0;  // measured on a scratch file; 0: not measured
    // Called once, from any thread, after a Fill has made the partition and was answered.
    std::function<void()> on_filled;
    ServerSecurity security = {};
  };

  // Listens. Health is NOT_SERVING. Describe says name, rate and free disk, and has no
  // terms; Fill fills, one call at a time; everything else is FAILED_PRECONDITION.
  //   INVALID_ARGUMENT  the name is none
  //   and GrpcServer::Start's errors
  static absl::StatusOr<std::unique_ptr<EmptyNodeServer>> Start(Options options);
  // Stops a Fill that is under way, which keeps what it has finished.
  ~EmptyNodeServer();

  // With the port that the system chose where 0 was asked for.
  const NetAddress& address() const;

 private:
  class Service;
  struct Impl;
  explicit EmptyNodeServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_EMPTY_NODE_SERVER_H_

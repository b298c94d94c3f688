// gRPC's own messages about connections, brought under the same limit as ours: it writes a line for
// each handshake that fails, and anybody can make them fail.
#ifndef SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_
#define SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_

#include "expert_node/service/refusal_log.h"

namespace shoal {

// While it lives, gRPC's lines about failed handshakes go to `log`, which outlives it. For the whole
// process, and one at a time, because gRPC has one hook; a second one changes nothing. Not
// thread-safe.
class GrpcLogTap {
 public:
  explicit GrpcLogTap(RefusalLog& log);
  ~GrpcLogTap();
  GrpcLogTap(const GrpcLogTap&) = delete;
  GrpcLogTap& operator=(const GrpcLogTap&) = delete;

 private:
  bool mine_ = false;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_

// gRPC's and Protocol Buffers' own lines, brought under the same limit and into the same form as ours: they
// write one for each handshake that fails and each message that is none, and anybody can send such.
#ifndef SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_
#define SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_

#include <google/protobuf/stubs/logging.h>

#include <string>

#include "expert_node/service/refusal_log.h"

namespace shoal {

// While it lives, these lines go to `log`, which outlives it. For the whole process, and one at a time,
// because each library has one hook; a second one changes nothing. Not thread-safe.
class GrpcLogTap {
 public:
  explicit GrpcLogTap(RefusalLog& log);
  ~GrpcLogTap();
  GrpcLogTap(const GrpcLogTap&) = delete;
  GrpcLogTap& operator=(const GrpcLogTap&) = delete;

 private:
  bool mine_ = false;
  // Of Protocol Buffers, before.
  void (*protobuf_handler_)(google::protobuf::LogLevel level, const char* file, int line,
                            const std::string& message) = nullptr;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_GRPC_LOG_H_

// Errors across the wire: the codes of absl::Status and grpc::Status are the same numbers.
#ifndef SHOAL_EXPERT_NODE_SERVICE_GRPC_STATUS_H_
#define SHOAL_EXPERT_NODE_SERVICE_GRPC_STATUS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace shoal {

// A message is cut to 1500 bytes: peers refuse trailers of more than 8 KiB, and a byte can take
// three there. Callers include <grpcpp/support/status.h>.
grpc::Status ToGrpcStatus(const absl::Status& status);
// A connection that was closed is told with what to do, instead of gRPC's "Socket closed".
absl::Status FromGrpcStatus(const grpc::Status& status);

// An error that arrived as code and message (shoal.v1.Error). A code that is no error's becomes
// UNKNOWN: the other side says that it failed.
absl::Status ErrorFromWire(int32_t code, const std::string& message);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_GRPC_STATUS_H_

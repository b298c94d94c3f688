#include "expert_node/service/grpc_status.h"

#include <grpcpp/support/status.h>

namespace shoal {
namespace {

constexpr size_t kMostMessageBytes = 1500;

static_assert(static_cast<int>(absl::StatusCode::kUnauthenticated) ==
              static_cast<int>(grpc::StatusCode::UNAUTHENTICATED));

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  return {static_cast<grpc::StatusCode>(status.code()),
          std::string(status.message().substr(0, kMostMessageBytes))};
}

absl::Status FromGrpcStatus(const grpc::Status& status) {
  return status.ok()
             ? absl::OkStatus()
             : ErrorFromWire(static_cast<int32_t>(status.error_code()), status.error_message());
}

absl::Status ErrorFromWire(int32_t code, const std::string& message) {
  const bool is_error = code > static_cast<int32_t>(absl::StatusCode::kOk) &&
                        code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return {is_error ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, message};
}

}  // namespace shoal

#include "expert_node/service/grpc_status.h"

#include <grpcpp/support/status.h>

#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

constexpr size_t kMostMessageBytes = 1500;

constexpr char kClosed[] =
    "the other side closed the connection: its program ended, or it refuses this one and its own "
    "log says why (often --tls is missing on one side)";

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
  if (status.ok()) {
    return absl::OkStatus();
  }
  std::string message = status.error_message();
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    // gRPC's own words for it say neither what happened nor what to do.
    absl::StrReplaceAll({{"Socket closed", kClosed}, {"Connection reset by peer", kClosed}},
                        &message);
  }
  return ErrorFromWire(static_cast<int32_t>(status.error_code()), message);
}

absl::Status ErrorFromWire(int32_t code, const std::string& message) {
  const bool is_error = code > static_cast<int32_t>(absl::StatusCode::kOk) &&
                        code <= static_cast<int32_t>(absl::StatusCode::kUnauthenticated);
  return {is_error ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, message};
}

}  // namespace shoal

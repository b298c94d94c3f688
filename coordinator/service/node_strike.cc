#include "coordinator/service/node_strike.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/drill.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kAnswerWithin(5);

}  // namespace

absl::Status StrikeNode(const std::string& address, const v1::DrillRequest& request) {
  const auto stub =
      v1::Drill::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::DrillReply reply;
  const grpc::Status status = stub->Start(&context, request, &reply);
  if (request.has_kill() && status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::OkStatus();
  }
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the node at ", address, " does not take part in drills: start it with --allow-drill"));
  }
  return Annotate(FromGrpcStatus(status), absl::StrCat("node at ", address));
}

absl::Status EndStrikes(const std::string& address) {
  v1::DrillRequest request;
  request.mutable_end();
  return StrikeNode(address, request);
}

}  // namespace shoal

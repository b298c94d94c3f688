#include "coordinator/service/node_strike.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"
#include "expert_node/service/node_client.h"
#include "shoal/v1/drill.pb.h"

namespace shoal {
namespace {

// An answer says nothing but that it came.
constexpr uint64_t kMessageBytes = 1024;

}  // namespace

absl::Status StrikeNode(const std::string& address, const ChannelSecurity& security,
                        const v1::DrillRequest& request) {
  const absl::Status status = NodeClient(address, kMessageBytes, security).Drill(request);
  if (request.has_kill() && absl::IsUnavailable(status)) {
    return absl::OkStatus();
  }
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the node at ", address, " does not take part in drills: start it with --allow-drill"));
  }
  return Annotate(status, absl::StrCat("node at ", address));
}

absl::Status EndStrikes(const std::string& address, const ChannelSecurity& security) {
  v1::DrillRequest request;
  request.mutable_end();
  return StrikeNode(address, security, request);
}

}  // namespace shoal

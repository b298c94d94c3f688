// Errors for clients of the Inference service: what google.rpc's error model carries beside code and
// message. Details travel inside an absl::Status, as its payloads.
#ifndef SHOAL_COORDINATOR_SERVICE_ERROR_DETAILS_H_
#define SHOAL_COORDINATOR_SERVICE_ERROR_DETAILS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace shoal {

// An error with an ErrorInfo of the domain "shoal". `reason` is one that docs/protocol.md lists, and
// `message` is fit for a client: it names nothing of this machine.
absl::Status ClientError(absl::StatusCode code, absl::string_view reason,
                         absl::string_view message);
// INVALID_ARGUMENT with a BadRequest: `field` as the request's message names it, `description` with
// the value and what is accepted.
absl::Status FieldError(absl::string_view field, absl::string_view description,
                        absl::string_view reason = "INVALID_FIELD");
// Of a server that takes no new call.
absl::Status DrainingError();
// The same error with a RetryInfo.
absl::Status WithRetry(absl::Status status, absl::Duration delay);

// What a client is told of an error that happened while its call was computed: that of ClientError as it
// is, any other by its code alone, since its text may name files and machines. `call` is the number under
// which the server's log has the whole of it. That nodes are missing (UNAVAILABLE) is told in full but for
// paths.
absl::Status ForClient(const absl::Status& status, uint64_t call);
// `text` with every word that has a slash in it replaced.
std::string WithoutPaths(absl::string_view text);

// With a google.rpc.Status in `grpc-status-details-bin` where the status has details. Messages are cut as
// ToGrpcStatus does. Callers include <grpcpp/support/status.h>.
grpc::Status ToDetailedGrpcStatus(const absl::Status& status);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_ERROR_DETAILS_H_

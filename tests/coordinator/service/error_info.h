// What an error for clients carries.
#ifndef SHOAL_TESTS_COORDINATOR_SERVICE_ERROR_INFO_H_
#define SHOAL_TESTS_COORDINATOR_SERVICE_ERROR_INFO_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace grpc {
class Status;
}  // namespace grpc

namespace shoal::testing {

struct ErrorInfo {
  std::string reason;
  std::string domain;
  std::string field;  // of the first violation
  std::string description;
  std::optional<absl::Duration> retry;
};

// From the payloads of a status, and from the details of one that came over the wire.
ErrorInfo InfoOf(const absl::Status& status);
ErrorInfo InfoOf(const grpc::Status& status);

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_SERVICE_ERROR_INFO_H_

#include "tests/coordinator/service/error_info.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "coordinator/service/error_details.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace shoal::testing {

ErrorInfo InfoOf(const absl::Status& status) { return InfoOf(ToDetailedGrpcStatus(status)); }

ErrorInfo InfoOf(const grpc::Status& status) {
  ErrorInfo found;
  google::rpc::Status detailed;
  EXPECT_TRUE(detailed.ParseFromString(status.error_details()));
  EXPECT_EQ(detailed.code(), static_cast<int>(status.error_code()));
  EXPECT_EQ(detailed.message(), status.error_message());
  for (const google::protobuf::Any& any : detailed.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      found.reason = info.reason();
      found.domain = info.domain();
    } else if (any.UnpackTo(&bad)) {
      found.field = bad.field_violations(0).field();
      found.description = bad.field_violations(0).description();
    } else if (any.UnpackTo(&retry)) {
      found.retry = absl::Seconds(retry.retry_delay().seconds()) +
                    absl::Nanoseconds(retry.retry_delay().nanos());
    } else {
      ADD_FAILURE() << any.type_url();
    }
  }
  return found;
}

}  // namespace shoal::testing

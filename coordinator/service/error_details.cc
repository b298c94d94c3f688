#include "coordinator/service/error_details.h"

#include <grpcpp/support/status.h>

#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/log/log_line.h"
#include "expert_node/service/grpc_status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace shoal {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/";

template <typename Detail>
std::string TypeUrl() {
  return absl::StrCat(kTypePrefix, Detail::descriptor()->full_name());
}

template <typename Detail>
void Attach(const Detail& detail, absl::Status& status) {
  status.SetPayload(TypeUrl<Detail>(), absl::Cord(detail.SerializeAsString()));
}

}  // namespace

absl::Status ClientError(absl::StatusCode code, absl::string_view reason,
                         absl::string_view message) {
  absl::Status status(code, message);
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain("shoal");
  Attach(info, status);
  return status;
}

absl::Status FieldError(absl::string_view field, absl::string_view description,
                        absl::string_view reason) {
  absl::Status status = ClientError(absl::StatusCode::kInvalidArgument, reason,
                                    absl::StrCat(field, ": ", description));
  google::rpc::BadRequest bad;
  google::rpc::BadRequest::FieldViolation& violation = *bad.add_field_violations();
  violation.set_field(std::string(field));
  violation.set_description(std::string(description));
  Attach(bad, status);
  return status;
}

absl::Status DrainingError() {
  return ClientError(absl::StatusCode::kUnavailable, "DRAINING",
                     "the server is ending and takes no new call; try another, or later");
}

absl::Status WithRetry(absl::Status status, absl::Duration delay) {
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(delay, absl::Seconds(1), &delay));
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(delay)));
  Attach(retry, status);
  return status;
}

std::string WithoutPaths(absl::string_view text) {
  std::vector<absl::string_view> words = absl::StrSplit(text, ' ');
  for (absl::string_view& word : words) {
    if (absl::StrContains(word, '/')) {
      word = "[path]";
    }
  }
  return absl::StrJoin(words, " ");
}

absl::Status ForClient(const absl::Status& status, uint64_t call) {
  if (status.ok() || status.GetPayload(TypeUrl<google::rpc::ErrorInfo>()).has_value()) {
    return status;
  }
  const std::string log =
      absl::StrCat("; the server's log has more of it under call ", CallName(call));
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return status;
    case absl::StatusCode::kAborted:
      return ClientError(status.code(), "ANSWER_RETRACTED", WithoutPaths(status.message()));
    case absl::StatusCode::kUnavailable:
      return ClientError(status.code(), "POOL_INCOMPLETE", WithoutPaths(status.message()));
    case absl::StatusCode::kDataLoss:
      return ClientError(status.code(), "MODEL_DAMAGED",
                         absl::StrCat("a part of the model is damaged on the server", log));
    default:
      return ClientError(absl::StatusCode::kInternal, "SERVER_FAULT",
                         absl::StrCat("the server could not compute this", log));
  }
}

grpc::Status ToDetailedGrpcStatus(const absl::Status& status) {
  grpc::Status plain = ToGrpcStatus(status);
  google::rpc::Status detailed;
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    google::protobuf::Any& any = *detailed.add_details();
    any.set_type_url(std::string(type));
    any.set_value(std::string(payload));
  });
  if (detailed.details().empty()) {
    return plain;
  }
  detailed.set_code(static_cast<int32_t>(status.code()));
  detailed.set_message(plain.error_message());
  return {plain.error_code(), plain.error_message(), detailed.SerializeAsString()};
}

}  // namespace shoal

#include "coordinator/service/error_details.h"

#include <gmock/gmock.h>
#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/coordinator/service/error_info.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::ErrorInfo;
using ::shoal::testing::InfoOf;
using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(ErrorDetailsTest, AFieldIsNamedInTheMessageAndInABadRequest) {
  const absl::Status status = FieldError("options.top_p", "is 2; at most 1 is accepted");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               "options.top_p: is 2; at most 1 is accepted"));
  const ErrorInfo info = InfoOf(status);
  EXPECT_EQ(info.reason, "INVALID_FIELD");
  EXPECT_EQ(info.domain, "shoal");
  EXPECT_EQ(info.field, "options.top_p");
  EXPECT_EQ(info.description, "is 2; at most 1 is accepted");
  EXPECT_FALSE(info.retry.has_value());
}

TEST(ErrorDetailsTest, ARetryHasSecondsAndTheRest) {
  const absl::Status status =
      WithRetry(ClientError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL", "busy"),
                absl::Milliseconds(2250));
  EXPECT_EQ(InfoOf(status).retry, absl::Milliseconds(2250));
  EXPECT_EQ(InfoOf(status).reason, "QUEUE_FULL");
}

TEST(ErrorDetailsTest, WithoutDetailsNoneAreSent) {
  EXPECT_THAT(ToDetailedGrpcStatus(absl::CancelledError("x")).error_details(), IsEmpty());
  EXPECT_TRUE(ToDetailedGrpcStatus(absl::OkStatus()).ok());
}

// A trailer that is too long would be refused by the peer.
TEST(ErrorDetailsTest, BothMessagesAreCut) {
  const absl::Status status =
      ClientError(absl::StatusCode::kInternal, "SERVER_FAULT", std::string(10'000, 'x'));
  EXPECT_LT(ToDetailedGrpcStatus(status).error_details().size(), 2000);
}

TEST(ErrorDetailsTest, AFaultOfTheServerIsToldByItsCodeAlone) {
  const absl::Status damaged =
      ForClient(absl::DataLossError("/data/model/bank.3: unit 5 of expert 7"), 0x12);
  EXPECT_THAT(damaged, StatusIs(absl::StatusCode::kDataLoss,
                                AllOf(HasSubstr("call 0000000000000012"), Not(HasSubstr("bank")))));
  EXPECT_EQ(InfoOf(damaged).reason, "MODEL_DAMAGED");
  const absl::Status other = ForClient(absl::PermissionDeniedError("open /data/model"), 1);
  EXPECT_THAT(other, StatusIs(absl::StatusCode::kInternal, Not(HasSubstr("data"))));
  EXPECT_EQ(InfoOf(other).reason, "SERVER_FAULT");
}

TEST(ErrorDetailsTest, MissingNodesAreNamedButNoPath) {
  const absl::Status status = ForClient(
      absl::UnavailableError("node a at 127.0.0.1:7101: units 0-4: open /data/x: gone"), 1);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable,
                               "node a at 127.0.0.1:7101: units 0-4: open [path] gone"));
  EXPECT_EQ(InfoOf(status).reason, "POOL_INCOMPLETE");
}

TEST(ErrorDetailsTest, AnAnswerThatIsTakenBackSaysSo) {
  const absl::Status status = ForClient(absl::AbortedError("token 3 is wrong"), 1);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, "token 3 is wrong"));
  EXPECT_EQ(InfoOf(status).reason, "ANSWER_RETRACTED");
}

TEST(ErrorDetailsTest, WhatWasWrittenForClientsIsTold) {
  const absl::Status status = FieldError("text", "is a/b");
  EXPECT_EQ(ForClient(status, 1), status);
  EXPECT_THAT(ForClient(absl::OkStatus(), 1), ::shoal::testing::IsOk());
}

}  // namespace
}  // namespace shoal

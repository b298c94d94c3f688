#include "common/status/status_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "common/status/status_macros.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(AnnotateTest, PutsContextBeforeTheMessageAndKeepsTheCode) {
  EXPECT_THAT(Annotate(absl::DataLossError("bad byte"), "layer 3"),
              StatusIs(absl::StatusCode::kDataLoss, "layer 3: bad byte"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "layer 3").ok());
}

TEST(ErrnoToStatusTest, MapsTheErrorsPeopleCanActOn) {
  EXPECT_THAT(ErrnoToStatus(ENOSPC, "write x"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(StartsWith("write x: "), HasSubstr("No space left"))));
  EXPECT_THAT(ErrnoToStatus(ENOENT, "open x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("x")));
  EXPECT_THAT(ErrnoToStatus(EACCES, "open x"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("x")));
  EXPECT_THAT(ErrnoToStatus(EEXIST, "make x"),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("x")));
  EXPECT_THAT(ErrnoToStatus(EIO, "read x"),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Input/output error")));
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) {
    return absl::InvalidArgumentError("odd");
  }
  return x / 2;
}

absl::StatusOr<int> Quarter(int x) {
  SHOAL_ASSIGN_OR_RETURN(const int half, Half(x));
  return Half(half);
}

TEST(StatusMacrosTest, ReturnTheFirstError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_THAT(Quarter(6), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
  EXPECT_THAT(Quarter(5), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
}

}  // namespace
}  // namespace shoal

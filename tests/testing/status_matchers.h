// gMock matchers for absl::Status and absl::StatusOr; the packaged Abseil has none.
#ifndef SHOAL_TESTS_TESTING_STATUS_MATCHERS_H_
#define SHOAL_TESTS_TESTING_STATUS_MATCHERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shoal::testing {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// StatusIs(absl::StatusCode::kDataLoss, HasSubstr("trunk.bin"))
MATCHER_P2(StatusIs, code, message_matcher, "") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::Matches(message_matcher)(std::string(StatusOf(arg).message()));
}

}  // namespace shoal::testing

#define SHOAL_ASSERT_OK(expr) ASSERT_THAT((expr), ::shoal::testing::IsOk())
#define SHOAL_EXPECT_OK(expr) EXPECT_THAT((expr), ::shoal::testing::IsOk())

// SHOAL_ASSERT_OK_AND_ASSIGN(auto x, F()): fails the test unless F() is OK.
#define SHOAL_ASSERT_OK_AND_ASSIGN(lhs, expr) \
  SHOAL_ASSERT_OK_AND_ASSIGN_IMPL_(SHOAL_TEST_CONCAT_(shoal_test_value_, __LINE__), lhs, expr)
#define SHOAL_TEST_CONCAT_INNER_(a, b) a##b
#define SHOAL_TEST_CONCAT_(a, b) SHOAL_TEST_CONCAT_INNER_(a, b)
#define SHOAL_ASSERT_OK_AND_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                     \
  ASSERT_THAT(tmp, ::shoal::testing::IsOk());            \
  lhs = std::move(tmp).value()

#endif  // SHOAL_TESTS_TESTING_STATUS_MATCHERS_H_

#include "common/io/json_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// An object with `levels` levels of nesting in all.
std::string Nested(size_t levels) {
  return absl::StrCat("{\"a\":", std::string(levels - 1, '['), std::string(levels - 1, ']'), "}");
}

TEST(ParseJsonObjectTest, RefusesAKeyThatAppearsTwiceInOneObject) {
  EXPECT_THAT(ParseJsonObject(R"({"x": 1, "y": 2, "x": 1})", "a.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a.json"), HasSubstr("\"x\" appears twice"))));
  EXPECT_THAT(ParseJsonObject(R"({"outer": [{"x": 1, "\u0078": 2}]})", "a.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"x\" appears twice")));
}

TEST(ParseJsonObjectTest, AcceptsTheSameKeyInDifferentObjects) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Json json,
                             ParseJsonObject(R"({"x": {"x": 1}, "y": [{"x": 2}, {"x": 3}]})", "a"));
  EXPECT_EQ(json["y"][1]["x"], 3);
}

TEST(ParseJsonObjectTest, AcceptsSixtyFourLevelsAndNoMore) {
  SHOAL_EXPECT_OK(ParseJsonObject(Nested(64), "a"));
  EXPECT_THAT(ParseJsonObject(Nested(65), "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64 levels")));
}

TEST(ParseJsonObjectTest, SurvivesMillionsOfOpenBrackets) {
  EXPECT_THAT(ParseJsonObject(absl::StrCat("{\"a\":", std::string(size_t{1} << 22, '[')), "a"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64 levels")));
}

TEST(ParseJsonObjectTest, RefusesWhatIsNoJsonObject) {
  for (const char* text : {"", "[]", "7", "null", "{", "{} {}", "{\"a\": NaN}", "{\"a\": 1e999}",
                           "{\"a\": \"\xff\"}", "{'a': 1}"}) {
    EXPECT_THAT(ParseJsonObject(text, "a.json"),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("a.json"), HasSubstr("not a JSON object"))))
        << text;
  }
}

}  // namespace
}  // namespace shoal

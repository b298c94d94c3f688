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

TEST(ParseJsonObjectTest, CountsValues) {
  const auto zeros = [](size_t count) {
    std::string text = "{\"a\":[0";
    for (size_t i = 1; i < count; ++i) {
      text += ",0";
    }
    return text + "]}";
  };
  constexpr size_t kLimit = size_t{1} << 21;
  SHOAL_EXPECT_OK(ParseJsonObject(zeros(kLimit - 2), "a.json"));  // and the object and the array
  EXPECT_THAT(ParseJsonObject(zeros(kLimit - 1), "a.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a.json"), HasSubstr("2097152 values"))));
}

TEST(ParseJsonObjectTest, SaysWhereAndWhyTextIsMalformed) {
  EXPECT_THAT(ParseJsonObject("{\"a\": 1,\n \"b\" 2}", "a.json"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("malformed at byte 15"), HasSubstr("line 2"),
                             HasSubstr("expected ':'"))));
  EXPECT_THAT(ParseJsonObject("{\"a\": 1", "a.json"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unexpected end of input")));
  // What is quoted is printable and short.
  const absl::Status status =
      ParseJsonObject(absl::StrCat("{\"", std::string(5000, '\x01')), "a").status();
  EXPECT_LT(status.message().size(), 300U);
  const absl::Status bytes = ParseJsonObject("{\"a\": \"\xff\xfe", "a").status();
  for (const char c : bytes.message()) {
    EXPECT_TRUE(c >= ' ' && c <= '~') << bytes;
  }
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

#include "coordinator/cli/text_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/io/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class TextInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        tokenizer_, Tokenizer::Load(SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear", 4096));
  }
  TextInput FromFile(const std::string& text) {
    SHOAL_EXPECT_OK(WriteFileAtomically(dir_ / "text", text));
    TextInput input;
    input.file = dir_ / "text";
    return input;
  }

  const TempDir dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

// Words, long runs of spaces, Han, letters of two bytes and bytes that are no UTF-8, so that every
// rule of the split pattern meets a border.
std::string LongText() {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) {
    text += i % 7 == 0   ? "  \n "
            : i % 5 == 0 ? "\u4f60\u597d"
            : i % 3 == 0 ? "\u00fcber's"
                         : " king";
    text += i % 11 == 0 ? "\xff" : "";
    text += i % 1001 == 0 ? std::string(30'000, i % 2 == 0 ? ' ' : 'x') : "";
  }
  return text;
}

TEST_F(TextInputTest, TextReadInPiecesHasTheTokensOfTheWhole) {
  const std::string text = LongText();
  const std::vector<int32_t> whole = tokenizer_->EncodeText(text);
  const TextInput input = FromFile(text);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, input.ReadIds(*tokenizer_, {}));
  EXPECT_TRUE(ids == whole);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> some,
                             input.ReadIds(*tokenizer_, whole.size() / 2));
  EXPECT_TRUE(some == std::vector<int32_t>(whole.begin(), whole.begin() + whole.size() / 2));
}

TEST_F(TextInputTest, SafeBorderIsBehindTheFirst400000Characters) {
  EXPECT_EQ(SafeBorder(std::string(399'999, 'a')), 0U);
  EXPECT_EQ(SafeBorder(std::string(400'000, 'a')), 400'000U);
  EXPECT_EQ(SafeBorder("\xff" + std::string(500'000, 'a')), 400'001U);
}

TEST_F(TextInputTest, TextTooLongForMemoryIsRefusedUnlessOnlyItsBeginningIsWanted) {
  const TextInput input = FromFile(std::string(kMaxTextBytes + 1, 'a'));
  const auto too_long = StatusIs(absl::StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("64.0 MiB"), HasSubstr("/text")));
  EXPECT_THAT(input.ReadText().status(), too_long);
  EXPECT_THAT(input.ReadIds(*tokenizer_, {}).status(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--limit")));
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, input.ReadIds(*tokenizer_, 10));
  EXPECT_EQ(ids.size(), 10U);
}

TEST_F(TextInputTest, MaxTokensCutsEverySource) {
  TextInput input;
  input.ids = {5, 6, 7};
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, input.ReadIds(*tokenizer_, 2));
  EXPECT_THAT(ids, ElementsAre(5, 6));
  input.ids.reset();
  input.argument = "once upon a time there was a king";
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> text_ids, input.ReadIds(*tokenizer_, 2));
  EXPECT_EQ(text_ids.size(), 2U);
}

TEST_F(TextInputTest, OffersIdsOnlyWhereTheyAreTaken) {
  for (const bool with_ids : {false, true}) {
    FlagSet flags("shoal", "test", "Tests");
    TextInput input;
    input.Add(flags, "TEXT", with_ids);
    input.argument = "a";
    input.file = "b";
    const absl::Status status = input.CheckOneSource();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--file")));
    EXPECT_EQ(absl::string_view(status.message()).find("--ids") != absl::string_view::npos,
              with_ids);
  }
}

}  // namespace
}  // namespace shoal

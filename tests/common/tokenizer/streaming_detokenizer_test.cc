#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unicode/unistr.h>

#include <array>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

#define SHOAL_FFFD "\xEF\xBF\xBD"

class StreamingDetokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        tokenizer_, Tokenizer::Load(SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear", 4096));
    // The first 256 ranks are the single bytes, in an order of the vocabulary's own.
    for (int32_t id = 0; id < 256; ++id) {
      const absl::string_view bytes = *tokenizer_->TokenBytes(id);
      ASSERT_EQ(bytes.size(), 1U);
      id_of_byte_[static_cast<uint8_t>(bytes[0])] = id;
    }
  }

  // What comes out for each byte of `bytes`, one token a byte, with '|' between; then the flush.
  std::string Stream(const std::string& bytes) const {
    StreamingDetokenizer stream(*tokenizer_);
    std::string text;
    for (const char byte : bytes) {
      text += *stream.Push(id_of_byte_[static_cast<uint8_t>(byte)]) + "|";
    }
    return text + stream.Flush();
  }
  // The same without the bars.
  std::string Text(const std::vector<int32_t>& ids) const {
    StreamingDetokenizer stream(*tokenizer_);
    std::string text;
    for (const int32_t id : ids) {
      text += *stream.Push(id);
    }
    return text + stream.Flush();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::array<int32_t, 256> id_of_byte_{};
};

TEST_F(StreamingDetokenizerTest, ACharacterComesOutWithItsLastByte) {
  EXPECT_EQ(Stream("a\xC3\xA9"
                   "b"),
            "a||\xC3\xA9|b|");
  EXPECT_EQ(Stream("\xE6\xBC\xA2"), "||\xE6\xBC\xA2|");
  EXPECT_EQ(Stream("\xF0\x9F\x98\x80!"), "|||\xF0\x9F\x98\x80|!|");
}

TEST_F(StreamingDetokenizerTest, WhatCannotBecomeACharacterIsReplacedAtOnce) {
  EXPECT_EQ(Stream("\xFF"), SHOAL_FFFD "|");
  EXPECT_EQ(Stream("\x80"), SHOAL_FFFD "|");
  EXPECT_EQ(Stream("\xC3"
                   "a"),
            "|" SHOAL_FFFD "a|");
  EXPECT_EQ(Stream("\xF0\x9F\xC3\xA9"), "||" SHOAL_FFFD "|\xC3\xA9|");
}

// Unicode 15, tables 3-8 to 3-11: one U+FFFD for each maximal subpart of an ill-formed sequence.
TEST_F(StreamingDetokenizerTest, ReplacesAsTheUnicodeStandardShows) {
  struct Example {
    const char* bytes;
    const char* shape;  // '?' is U+FFFD
  };
  for (const Example& example : {Example{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},
                                 Example{"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},
                                 Example{"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},
                                 Example{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"}}) {
    std::string expected;
    for (const char c : std::string(example.shape)) {
      expected += c == '?' ? SHOAL_FFFD : std::string(1, c);
    }
    std::vector<int32_t> ids;
    for (const char c : std::string(example.bytes)) {
      ids.push_back(id_of_byte_[static_cast<uint8_t>(c)]);
    }
    EXPECT_EQ(Text(ids), expected) << absl::CHexEscape(example.bytes);
  }
}

TEST_F(StreamingDetokenizerTest, FlushReplacesAnUnfinishedCharacterAndStartsAnew) {
  StreamingDetokenizer stream(*tokenizer_);
  EXPECT_EQ(*stream.Push(id_of_byte_[0xF0]), "");
  EXPECT_EQ(*stream.Push(id_of_byte_[0x9F]), "");
  EXPECT_EQ(stream.Flush(), SHOAL_FFFD);
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(*stream.Push(id_of_byte_['x']), "x");
}

TEST_F(StreamingDetokenizerTest, SpecialTokensGiveNothing) {
  StreamingDetokenizer stream(*tokenizer_);
  EXPECT_EQ(*stream.Push(3842), "");
  // Nor do they cut a character.
  EXPECT_EQ(*stream.Push(id_of_byte_[0xC3]), "");
  EXPECT_EQ(*stream.Push(3842), "");
  EXPECT_EQ(*stream.Push(id_of_byte_[0xA9]), "\xC3\xA9");
}

TEST_F(StreamingDetokenizerTest, AnIdOutsideTheVocabularyChangesNothing) {
  StreamingDetokenizer stream(*tokenizer_);
  EXPECT_EQ(*stream.Push(id_of_byte_[0xC3]), "");
  EXPECT_THAT(stream.Push(4096), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("4096")));
  EXPECT_EQ(*stream.Push(id_of_byte_[0xA9]), "\xC3\xA9");
}

TEST_F(StreamingDetokenizerTest, EveryFixtureComesOutWhole) {
  std::ifstream in(SHOAL_SOURCE_DIR "/tests/data/tokenizer.json");
  const auto json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  for (const auto& fixture : json.at("cases")) {
    EXPECT_EQ(Text(fixture.at("ids_no_special").get<std::vector<int32_t>>()),
              fixture.at("text").get<std::string>());
  }
}

TEST_F(StreamingDetokenizerTest, AnyTokensGiveTheTextThatIcuGives) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::vector<int32_t> ids(random() % 40);
    for (int32_t& id : ids) {
      id = static_cast<int32_t>(random() % (random() % 2 == 0 ? 256 : 3840));
    }
    const std::string bytes = *tokenizer_->Decode(ids);
    std::string expected;
    icu::UnicodeString::fromUTF8(bytes).toUTF8String(expected);
    ASSERT_EQ(Text(ids), expected) << absl::CHexEscape(bytes);
  }
}

}  // namespace
}  // namespace shoal

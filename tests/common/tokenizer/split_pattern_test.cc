#include "common/tokenizer/split_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;

std::vector<std::string> Split(absl::string_view text) {
  std::vector<std::string> pieces;
  SplitText(text, [&](absl::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

// Lengths of the pieces in characters, as tests/data/split_pattern.json has them.
std::string Cuts(absl::string_view text) {
  std::string cuts;
  SplitText(text, [&](absl::string_view piece) {
    const auto continuation = [](char c) { return (c & 0xC0) == 0x80; };
    const auto characters = static_cast<int64_t>(piece.size()) -
                            std::count_if(piece.begin(), piece.end(), continuation);
    absl::StrAppend(&cuts, cuts.empty() ? "" : " ", characters);
  });
  return cuts;
}

std::string Utf8(uint32_t c) {
  std::string bytes;
  if (c < 0x80) {
    return {static_cast<char>(c)};
  }
  int shift = c < 0x800 ? 6 : c < 0x10000 ? 12 : 18;
  const uint32_t lead = shift == 6 ? 0xC0 : shift == 12 ? 0xE0 : 0xF0;
  bytes += static_cast<char>(lead | c >> shift);
  while ((shift -= 6) >= 0) {
    bytes += static_cast<char>(0x80 | (c >> shift & 0x3F));
  }
  return bytes;
}

// Made by tests/data/make_split_pattern.py from the reference's regular expression.
const Json& Expected() {
  static const Json* const expected = [] {
    std::ifstream in(SHOAL_SOURCE_DIR "/tests/data/split_pattern.json");
    return new Json(Json::parse(in, nullptr, /*allow_exceptions=*/false));
  }();
  return *expected;
}

TEST(SplitPatternTest, CutsRandomTextsAsTheReferencePatternDoes) {
  ASSERT_EQ(Expected().at("texts").size(), 600U);
  for (const Json& row : Expected().at("texts")) {
    const auto text = row.at(0).get<std::string>();
    EXPECT_EQ(Cuts(text), row.at(1).get<std::string>()) << absl::CHexEscape(text);
  }
}

TEST(SplitPatternTest, EveryCodePointHasTheClassesOfTheReferencePattern) {
  const auto probes = Expected().at("probes").get<std::vector<std::string>>();
  int64_t count = 0;
  for (const Json& row : Expected().at("classes")) {
    for (auto c = row.at(0).get<uint32_t>(); c <= row.at(1).get<uint32_t>(); ++c, ++count) {
      std::string cuts;
      for (const std::string& probe : probes) {
        absl::StrAppend(&cuts, cuts.empty() ? "" : ",",
                        Cuts(absl::StrReplaceAll(probe, {{"X", Utf8(c)}})));
      }
      EXPECT_EQ(cuts, row.at(2).get<std::string>()) << absl::StrCat("U+", absl::Hex(c));
    }
  }
  EXPECT_GT(count, 280'000);  // what Unicode 14 assigns, private use included
}

// One example of each alternative, and of what it leaves to the next.
TEST(SplitPatternTest, CutsExamplesAsWrittenInThePattern) {
  EXPECT_THAT(Split(""), ElementsAre());
  EXPECT_THAT(Split("漢字abc"), ElementsAre("漢字", "abc"));
  EXPECT_THAT(Split(" 漢字"), ElementsAre(" ", "漢字"));  // Han takes no leading space
  EXPECT_THAT(Split("Hello World"), ElementsAre("Hello", " World"));
  EXPECT_THAT(Split("HELLOWorld"), ElementsAre("HELLOWorld"));
  EXPECT_THAT(Split("helloWORLD"), ElementsAre("hello", "WORLD"));
  EXPECT_THAT(Split("can't WE'LL o'clock"), ElementsAre("can't", " WE'LL", " o", "'clock"));
  EXPECT_THAT(Split("it'\xC5\xBF"), ElementsAre("it'\xC5\xBF"));  // the long s folds to s
  EXPECT_THAT(Split("1234567"), ElementsAre("123", "456", "7"));
  EXPECT_THAT(Split("x 12"), ElementsAre("x", " ", "12"));
  EXPECT_THAT(Split("a ...\r\n\nb"), ElementsAre("a", " ...\r\n\n", "b"));
  EXPECT_THAT(Split("a  \n \n  b"), ElementsAre("a", "  \n \n", " ", " b"));
  EXPECT_THAT(Split("a   "), ElementsAre("a", "   "));
  EXPECT_THAT(Split("a   1"), ElementsAre("a", "  ", " ", "1"));
}

TEST(SplitPatternTest, BytesThatAreNotUtf8ArePiecesOfOneByte) {
  EXPECT_THAT(Split("ab\xFF"
                    "cd"),
              ElementsAre("ab", "\xFF", "cd"));
  EXPECT_THAT(Split("\xE6\xBC"), ElementsAre("\xE6", "\xBC"));
  EXPECT_THAT(Split("\xED\xA0\x80"), ElementsAre("\xED", "\xA0", "\x80"));  // a surrogate
}

TEST(SplitPatternTest, LongRunsAreCutAfter25000Characters) {
  const std::string run(25'000, 'a');
  EXPECT_THAT(Split(run), ElementsAre(run));
  EXPECT_THAT(Split(run + "b"), ElementsAre(run, "b"));
  EXPECT_THAT(Split(run + run + "b"), ElementsAre(run, run, "b"));
  // Without the cut the last space of a run goes to the word behind it.
  const std::string spaces(25'000, ' ');
  EXPECT_THAT(Split(spaces + "x"), ElementsAre(spaces.substr(1), " x"));
  EXPECT_THAT(Split(spaces + " x"), ElementsAre(spaces, " x"));
  EXPECT_THAT(Split(spaces + "  x"), ElementsAre(spaces, " ", " x"));
  // Characters count, not bytes; U+001C is white space to the cut and a symbol to the pattern.
  std::string accents;
  for (int i = 0; i < 25'000; ++i) {
    accents += "\xC3\xA9";
  }
  EXPECT_THAT(Split(accents + "\xC3\xA9"), ElementsAre(accents, "\xC3\xA9"));
  EXPECT_THAT(Split(run.substr(1) + "\x1C"
                                    "a"),
              ElementsAre(run.substr(1),
                          "\x1C"
                          "a"));
}

TEST(SplitPatternTest, TextIsCutEvery400000Characters) {
  std::string text;
  for (int i = 0; i < 133'334; ++i) {
    text += "ab ";
  }
  // Character 400,000 is the b of the last word.
  const std::vector<std::string> pieces = Split(text);
  ASSERT_GE(pieces.size(), 3U);
  EXPECT_THAT(std::vector<std::string>(pieces.end() - 3, pieces.end()),
              ElementsAre(" a", "b", " "));
  EXPECT_EQ(pieces.size(), 133'336U);
}

TEST(SplitPatternTest, PiecesTogetherAreTheText) {
  std::string all;
  for (uint32_t c = 0; c < 0x110000; c += 13) {
    all += Utf8(c);  // surrogates too
  }
  std::string joined;
  for (const std::string& piece : Split(all)) {
    EXPECT_FALSE(piece.empty());
    joined += piece;
  }
  EXPECT_EQ(joined, all);
}

}  // namespace
}  // namespace shoal

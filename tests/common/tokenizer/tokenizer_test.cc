#include "common/tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr char kBundledModel[] = SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear";
constexpr int64_t kVocabSize = 4096;  // of which 3840 are base tokens
constexpr int32_t kBase = 3840;

const Tokenizer& Bundled() {
  static const Tokenizer* const tokenizer =
      Tokenizer::Load(kBundledModel, kVocabSize).value().release();
  return *tokenizer;
}

// Texts with the ids that the reference tokenizer (tests/reference/tiktoken_reference.py) gives.
const Json& Cases() {
  static const Json* const cases = [] {
    std::ifstream in(SHOAL_SOURCE_DIR "/tests/data/tokenizer.json");
    return new Json(Json::parse(in, nullptr, /*allow_exceptions=*/false).at("cases"));
  }();
  return *cases;
}

TEST(TokenizerTest, GivesTheIdsOfTheReferenceForEveryFixture) {
  ASSERT_EQ(Cases().size(), 65U);
  for (const Json& fixture : Cases()) {
    const auto text = fixture.at("text").get<std::string>();
    EXPECT_EQ(Bundled().EncodeWithSpecial(text), fixture.at("ids").get<std::vector<int32_t>>())
        << text;
    EXPECT_EQ(Bundled().EncodeText(text), fixture.at("ids_no_special").get<std::vector<int32_t>>())
        << text;
  }
}

TEST(TokenizerTest, DecodesEveryFixtureToItsText) {
  for (const Json& fixture : Cases()) {
    for (const char* kind : {"ids", "ids_no_special"}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const std::string text,
                                 Bundled().Decode(fixture.at(kind).get<std::vector<int32_t>>()));
      EXPECT_EQ(text, fixture.at("text").get<std::string>());
    }
  }
}

TEST(TokenizerTest, AnyBytesRoundTrip) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 120, '\0');
    for (char& c : text) {
      // Bytes that begin and continue characters often meet by chance in such a mixture.
      const uint32_t kind = random() % 4;
      c = static_cast<char>(kind == 0   ? 0x80 + random() % 64
                            : kind == 1 ? 0xC0 + random() % 64
                                        : random() % 128);
    }
    for (const auto& ids : {Bundled().EncodeText(text), Bundled().EncodeWithSpecial(text)}) {
      SHOAL_ASSERT_OK_AND_ASSIGN(const std::string decoded, Bundled().Decode(ids));
      ASSERT_EQ(decoded, text) << absl::CHexEscape(text);
    }
  }
}

TEST(TokenizerTest, BytesThatAreNotUtf8AreTheirOwnTokens) {
  // 0xE6 0xBC begins a character of three bytes that never ends.
  const std::vector<int32_t> ids = Bundled().EncodeText("a\xE6\xBC!\xFF");
  ASSERT_EQ(ids.size(), 5U);
  const char* expected[] = {"a", "\xE6", "\xBC", "!", "\xFF"};
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(*Bundled().TokenBytes(ids[i]), expected[i]);
  }
}

TEST(TokenizerTest, WhatUsersTypeIsNeverASpecialToken) {
  for (int32_t id = kBase; id < kVocabSize; ++id) {
    const std::string name(*Bundled().TokenBytes(id));
    for (const std::string& text : {name, absl::StrCat("x", name, name), absl::StrCat(" ", name)}) {
      for (const int32_t encoded : Bundled().EncodeText(text)) {
        ASSERT_LT(encoded, kBase) << text;
      }
    }
    EXPECT_THAT(Bundled().EncodeWithSpecial(name), ElementsAre(id)) << name;
  }
}

TEST(TokenizerTest, SpecialTokensAreKnownByName) {
  EXPECT_EQ(Bundled().SpecialId("[BOS]"), 3840);
  EXPECT_EQ(Bundled().SpecialId("<|im_end|>"), 3842);
  EXPECT_EQ(Bundled().SpecialId("<|reserved_token_3845|>"), 3845);  // the file does not name it
  EXPECT_EQ(Bundled().SpecialId("<|im_middle|>"), 3857);
  EXPECT_EQ(Bundled().SpecialId("[PAD]"), 4095);
  EXPECT_EQ(Bundled().SpecialId("<|im_en"), std::nullopt);
  EXPECT_EQ(Bundled().SpecialId("the"), std::nullopt);  // a token, but an ordinary one
  EXPECT_FALSE(Bundled().IsSpecial(3839));
  EXPECT_TRUE(Bundled().IsSpecial(3840));
  EXPECT_TRUE(Bundled().IsSpecial(4095));
  EXPECT_FALSE(Bundled().IsSpecial(4096));
  EXPECT_FALSE(Bundled().IsSpecial(-1));
}

TEST(TokenizerTest, IdsOutsideTheVocabularyAreOutOfRange) {
  for (const int32_t id :
       {-1, 4096, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    EXPECT_THAT(Bundled().TokenBytes(id),
                StatusIs(absl::StatusCode::kOutOfRange,
                         AllOf(HasSubstr(absl::StrCat(id)), HasSubstr("0 to 4095"))));
    const std::vector<int32_t> ids = {64, id};
    EXPECT_THAT(Bundled().Decode(ids), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("4095")));
  }
}

TEST(TokenizerTest, ALongRunTakesTimeInProportion) {
  // Quadratic merging would take minutes here.
  const std::string text(2'000'000, 'a');
  const auto begin = std::chrono::steady_clock::now();
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string decoded,
                             Bundled().Decode(Bundled().EncodeText(text)));
  EXPECT_EQ(decoded, text);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Small files for what Parse accepts and refuses: the 256 bytes in order, then "ab" and "abc".
std::vector<std::string> SmallTokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  tokens.emplace_back("ab");
  tokens.emplace_back("abc");
  return tokens;
}

std::string RankFile(const std::vector<std::string>& tokens) {
  std::string text;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    absl::StrAppend(&text, absl::Base64Escape(tokens[rank]), " ", rank, "\n");
  }
  return text;
}

constexpr char kNoSpecials[] = R"({"added_tokens_decoder": {}})";

absl::StatusOr<std::unique_ptr<Tokenizer>> ParseRanks(const std::string& ranks) {
  return Tokenizer::Parse(ranks, kNoSpecials, 514);
}
absl::StatusOr<std::unique_ptr<Tokenizer>> ParseSpecials(const std::string& config) {
  return Tokenizer::Parse(RankFile(SmallTokens()), config, 514);
}
auto Refused(const std::string& what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

TEST(TokenizerFileTest, MergesTheLowestRankFirst) {
  // "bc" ranks below "ab", so it is merged first and "ab" is then no neighbour.
  std::vector<std::string> tokens = SmallTokens();
  tokens[256] = "bc";
  tokens[257] = "ab";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseRanks(RankFile(tokens)));
  EXPECT_THAT(tokenizer->EncodeText("abc"), ElementsAre('a', 256));
  EXPECT_THAT(tokenizer->EncodeText("abab"), ElementsAre(257, 257));
  // With "ab" first and "abc" known, the whole piece is one token.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, ParseRanks(RankFile(SmallTokens())));
  EXPECT_THAT(other->EncodeText("abc"), ElementsAre(257));
  EXPECT_THAT(other->EncodeText("abcd"), ElementsAre(257, 'd'));
}

TEST(TokenizerFileTest, EqualPairsMergeLeftmostFirst) {
  std::vector<std::string> tokens = SmallTokens();
  tokens[256] = "aa";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseRanks(RankFile(tokens)));
  EXPECT_THAT(tokenizer->EncodeText("aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(tokenizer->EncodeText("aaaaa"), ElementsAre(256, 256, 'a'));
}

TEST(TokenizerFileTest, APieceThatIsATokenNeedsNoMerges) {
  // No pair of its bytes is a token, and yet it is one.
  std::vector<std::string> tokens = SmallTokens();
  tokens[257] = "xyz";
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseRanks(RankFile(tokens)));
  EXPECT_THAT(tokenizer->EncodeText("xyz"), ElementsAre(257));
  EXPECT_THAT(tokenizer->EncodeText("xyzz"), ElementsAre('x', 'y', 'z', 'z'));
}

TEST(TokenizerFileTest, AMissingByteIsNamed) {
  std::vector<std::string> tokens = SmallTokens();
  tokens[0xC3] = "zz";
  EXPECT_THAT(ParseRanks(RankFile(tokens)), Refused("single byte c3"));
  EXPECT_THAT(ParseRanks(""), Refused("single byte 00"));
}

TEST(TokenizerFileTest, ARankThatIsUsedTwiceIsNamedWithItsLine) {
  const std::string text = absl::StrReplaceAll(RankFile(SmallTokens()), {{" 41\n", " 40\n"}});
  EXPECT_THAT(ParseRanks(text), Refused("tiktoken.model line 42: rank 40 is used twice"));
}

TEST(TokenizerFileTest, ATokenWithTwoRanksIsNamed) {
  std::vector<std::string> tokens = SmallTokens();
  tokens[257] = "ab";
  EXPECT_THAT(ParseRanks(RankFile(tokens)), Refused("token \"ab\" has two ranks"));
}

TEST(TokenizerFileTest, MalformedLinesAreNamed) {
  const std::string good = RankFile(SmallTokens());
  for (const char* line : {"Q*== 257", "Q 257", "QQ==", "QQ==257", " 257", "= 257", "YWJj 257 1",
                           "YWJj  257", "\xFF\xFF 257"}) {
    const std::string text = absl::StrReplaceAll(good, {{"YWJj 257", line}});
    EXPECT_THAT(ParseRanks(text), Refused("tiktoken.model line 258: not \"BASE64 RANK\"")) << line;
  }
  for (const char* rank : {"-1", "258", "99999999999999999999", "x", "1.5", "0x10", ""}) {
    const std::string text = absl::StrReplaceAll(good, {{"YWJj 257", absl::StrCat("YWJj ", rank)}});
    EXPECT_THAT(ParseRanks(text), Refused("tiktoken.model line 258: rank")) << rank;
  }
}

TEST(TokenizerFileTest, AHugeRankCostsNoMemory) {
  // 2^24 - 1 names half a gigabyte of empty tokens.
  const std::string text =
      absl::StrReplaceAll(RankFile(SmallTokens()), {{"YWJj 257", "YWJj 16777215"}});
  EXPECT_THAT(ParseRanks(text), AllOf(Refused("line 258"), Refused("0 to 257")));
}

TEST(TokenizerFileTest, ATruncatedFileIsRefused) {
  const std::string good = RankFile(SmallTokens());
  // Inside a line, it is that line; a rank that lost its last digits is another rank.
  EXPECT_THAT(ParseRanks(good.substr(0, good.size() - 6)), Refused("line 258"));
  EXPECT_THAT(ParseRanks(good.substr(0, good.size() - 2)),
              Refused("line 258: rank 25 is used twice"));
  // Between lines it shows in the special tokens, whose ids follow the ranks.
  std::vector<std::string> tokens = SmallTokens();
  tokens.pop_back();
  EXPECT_THAT(Tokenizer::Parse(RankFile(tokens),
                               R"({"added_tokens_decoder": {"513": {"content": "[PAD]"}}})", 514),
              Refused("\"513\": special ids are 257 to 512"));
}

TEST(TokenizerFileTest, EmptyLinesAndAMissingLastNewlineAreFine) {
  const std::string good = RankFile(SmallTokens());
  SHOAL_EXPECT_OK(ParseRanks(good.substr(0, good.size() - 1)));
  SHOAL_EXPECT_OK(ParseRanks("\n" + good + "\n\n"));
}

TEST(TokenizerFileTest, SpecialTokensThatCannotBeAreNamed) {
  const auto with = [](const std::string& members) {
    return ParseSpecials(R"({"added_tokens_decoder": {)" + members + "}}");
  };
  SHOAL_EXPECT_OK(with(R"("258": {"content": "[A]"}, "513": {"content": "[B]"})"));
  for (const char* id : {"257", "0", "-1", "514", "x", "", "99999999999999999999"}) {
    EXPECT_THAT(with(absl::StrCat("\"", id, R"(": {"content": "[A]"})")),
                Refused(absl::StrCat("\"", id, "\": special ids are 258 to 513")));
  }
  EXPECT_THAT(with(R"("258": {"content": ""})"), Refused("\"258\": content is empty"));
  EXPECT_THAT(with(R"("258": {})"), Refused("\"258\": content is missing"));
  EXPECT_THAT(with(R"("258": {"content": 7})"), Refused("content is 7"));
  EXPECT_THAT(with(R"("258": "[A]")"), Refused("\"258\" is not an object"));
  EXPECT_THAT(with(R"("258": {"content": "[A]"}, "259": {"content": "[A]"})"),
              Refused("\"[A]\" twice"));
  EXPECT_THAT(with(R"("258": {"content": "<|reserved_token_300|>"})"),
              Refused("\"<|reserved_token_300|>\" twice"));
  EXPECT_THAT(with(R"("258": {"content": "[A]"}, " 258": {"content": "[B]"})"),
              Refused("appears twice"));
  EXPECT_THAT(with(R"("258": {"content": "[A]"}, "258": {"content": "[B]"})"),
              Refused("\"258\" appears twice"));
}

TEST(TokenizerFileTest, ATokenizerConfigThatIsNoneIsNamed) {
  EXPECT_THAT(ParseSpecials("["), Refused("tokenizer_config.json"));
  EXPECT_THAT(ParseSpecials("{}"), Refused("added_tokens_decoder"));
  EXPECT_THAT(ParseSpecials(R"({"added_tokens_decoder": []})"), Refused("added_tokens_decoder"));
}

TEST(TokenizerFileTest, TheLongestSpecialNameWins) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                             ParseSpecials(R"({"added_tokens_decoder": {"258": {"content": "<a"},
                        "259": {"content": "<a>b"}, "260": {"content": "<a>"}}})"));
  EXPECT_THAT(tokenizer->EncodeWithSpecial("<a<a><a>b<a>c<"),
              ElementsAre(258, 260, 259, 260, 'c', '<'));
  EXPECT_THAT(tokenizer->EncodeWithSpecial("ab<aab"), ElementsAre(256, 258, 256));
}

TEST(TokenizerFileTest, SpecialTokensBeyondTheVocabularyAreLeftOut) {
  const std::string config =
      R"({"added_tokens_decoder": {"258": {"content": "[A]"}, "259": {"content": "[B]"}}})";
  const std::string ranks = RankFile(SmallTokens());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto tokenizer, Tokenizer::Parse(ranks, config, 259));
  EXPECT_EQ(tokenizer->vocab_size(), 259);
  EXPECT_EQ(tokenizer->SpecialId("[A]"), 258);
  EXPECT_EQ(tokenizer->SpecialId("[B]"), std::nullopt);
  EXPECT_THAT(tokenizer->TokenBytes(259),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("0 to 258")));
  // Without one, the vocabulary ends with the ranks; below that it cannot end.
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto bare, Tokenizer::Parse(ranks, config, 258));
  EXPECT_FALSE(bare->IsSpecial(258));
  EXPECT_THAT(Tokenizer::Parse(ranks, config, 257),
              AllOf(Refused("258 tokens"), Refused("vocab_size is 257")));
}

TEST(TokenizerFileTest, ErrorsNameTheDirectory) {
  const TempDir dir;
  std::ofstream(dir / "tiktoken.model") << "no token\n";
  std::ofstream(dir / "tokenizer_config.json") << "{}";
  EXPECT_THAT(Tokenizer::Load(dir.path(), 300),
              AllOf(Refused(dir.path()), Refused("tiktoken.model line 1")));
}

TEST(TokenizerFileTest, LinesAndFieldsWithoutNumberCostNoMemory) {
  // As vectors of their pieces these would take 16 times their size.
  const std::string newlines(size_t{64} << 20, '\n');
  EXPECT_THAT(Tokenizer::Parse(newlines, "{}", 300), Refused("single byte 00"));
  const std::string spaces(size_t{64} << 20, ' ');
  EXPECT_THAT(Tokenizer::Parse(spaces, "{}", 300), Refused("line 1"));
  std::string lines;
  for (int i = 0; i < 1 << 20; ++i) {
    lines += "a\n";
  }
  EXPECT_THAT(Tokenizer::Parse(lines, "{}", 300), Refused("1048576 tokens"));
}

TEST(TokenizerFileTest, AMissingFileIsNamed) {
  const TempDir dir;
  EXPECT_THAT(Tokenizer::Load(dir.path(), 512),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("tiktoken.model")));
  std::ofstream(dir / "tiktoken.model") << RankFile(SmallTokens());
  EXPECT_THAT(Tokenizer::Load(dir.path(), 512),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("tokenizer_config.json")));
}

}  // namespace
}  // namespace shoal

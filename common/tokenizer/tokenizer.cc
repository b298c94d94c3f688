#include "common/tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/split_pattern.h"

namespace shoal {
namespace {

constexpr char kRankFile[] = "tiktoken.model";
constexpr char kConfigFile[] = "tokenizer_config.json";
constexpr int64_t kNumSpecial = 256;
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;

absl::Status LineError(int64_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(kRankFile, " line ", line, ": ", what));
}

// One line, "base64 rank", into tokens[rank].
absl::Status ParseRankLine(int64_t number, absl::string_view line,
                           std::vector<std::string>& tokens) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(' ', 2));
  int64_t rank = 0;
  std::string bytes;
  if (fields.size() != 2 || !absl::Base64Unescape(fields[0], &bytes) || bytes.empty()) {
    return LineError(number, "not \"BASE64 RANK\"");
  }
  if (!absl::SimpleAtoi(fields[1], &rank) || rank < 0 ||
      static_cast<size_t>(rank) >= tokens.size()) {
    return LineError(number, absl::StrCat("rank ", Brief(Json(std::string(fields[1]))),
                                          " is not a number from 0 to ", tokens.size() - 1,
                                          "; there are ", tokens.size(), " lines"));
  }
  std::string& token = tokens[static_cast<size_t>(rank)];
  if (!token.empty()) {
    return LineError(number, absl::StrCat("rank ", rank, " is used twice"));
  }
  token = std::move(bytes);
  return absl::OkStatus();
}

// Lines that are not empty.
int64_t CountTokens(absl::string_view text) {
  int64_t count = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    count += line.empty() ? 0 : 1;
  }
  return count;
}

absl::StatusOr<std::vector<std::string>> ParseRanks(absl::string_view text, int64_t vocab_size) {
  const int64_t num_tokens = CountTokens(text);
  // Before anything is allocated for them.
  if (num_tokens > vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        kRankFile, " has ", num_tokens, " tokens; the model's vocab_size is ", vocab_size));
  }
  // As many ranks as lines, all different and below their number: none is missing.
  std::vector<std::string> tokens(static_cast<size_t>(num_tokens));
  int64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!line.empty()) {
      SHOAL_RETURN_IF_ERROR(ParseRankLine(number, line, tokens));
    }
  }
  std::set<absl::string_view> seen;
  std::array<bool, 256> has_byte{};
  for (const std::string& token : tokens) {
    if (!seen.insert(token).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(kRankFile, ": token \"", absl::CHexEscape(token), "\" has two ranks"));
    }
    if (token.size() == 1) {
      has_byte[static_cast<uint8_t>(token[0])] = true;
    }
  }
  for (size_t byte = 0; byte < has_byte.size(); ++byte) {
    if (!has_byte[byte]) {
      return absl::InvalidArgumentError(
          absl::StrCat(kRankFile, ": the single byte ", absl::Hex(byte, absl::kZeroPad2),
                       " is not a token, so some texts could not be encoded"));
    }
  }
  return tokens;
}

// Names of the special ids base .. base + 255.
absl::StatusOr<std::vector<std::string>> ParseSpecials(absl::string_view text, int64_t base) {
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, kConfigFile));
  JsonFields fields(json, kConfigFile);
  const Json& decoder = fields.Object("added_tokens_decoder");
  SHOAL_RETURN_IF_ERROR(fields.status());
  std::vector<std::string> names(kNumSpecial);
  for (const auto& [key, value] : decoder.items()) {
    const std::string where =
        absl::StrCat(kConfigFile, ": added_tokens_decoder ", Brief(Json(key)));
    int64_t id = 0;
    if (!absl::SimpleAtoi(key, &id) || id < base || id >= base + kNumSpecial) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": special ids are ", base, " to ",
                                                     base + kNumSpecial - 1,
                                                     ", above the tokens of ", kRankFile));
    }
    if (!value.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(where, " is not an object"));
    }
    JsonFields token(value, where);
    std::string content = token.String("content");
    SHOAL_RETURN_IF_ERROR(token.status());
    std::string& name = names[static_cast<size_t>(id - base)];
    if (content.empty() || !name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, content.empty() ? ": content is empty" : ": the id appears twice"));
    }
    name = std::move(content);
  }
  std::set<absl::string_view> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) {
      names[i] = absl::StrCat("<|reserved_token_", base + static_cast<int64_t>(i), "|>");
    }
    if (!seen.insert(names[i]).second) {
      return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": added_tokens_decoder names ",
                                                     Brief(Json(names[i])), " twice"));
    }
  }
  return names;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(std::vector<std::string> tokens) : ranks(std::move(tokens)) {}

  BpeRanks ranks;
  std::vector<std::string> specials;  // of ids ranks.size()...; at most up to the vocabulary's end
  absl::flat_hash_map<std::string, int32_t> special_ids;
  std::array<std::vector<int32_t>, 256> specials_by_first_byte;  // longest name first
  int64_t vocab_size = 0;

  const std::string& special_name(int32_t id) const {
    return specials[static_cast<size_t>(id - ranks.size())];
  }

  // The special token whose name begins at the start of `text`, longest first.
  std::optional<int32_t> SpecialAt(absl::string_view text) const {
    for (const int32_t id : specials_by_first_byte[static_cast<uint8_t>(text[0])]) {
      if (absl::StartsWith(text, special_name(id))) {
        return id;
      }
    }
    return std::nullopt;
  }

  void AddSpecials(std::vector<std::string> names) {
    const int64_t room = std::max<int64_t>(0, vocab_size - ranks.size());
    names.resize(static_cast<size_t>(std::min(room, kNumSpecial)));
    specials = std::move(names);
    for (size_t i = 0; i < specials.size(); ++i) {
      const auto id = static_cast<int32_t>(ranks.size() + static_cast<int64_t>(i));
      special_ids[specials[i]] = id;
      specials_by_first_byte[static_cast<uint8_t>(specials[i][0])].push_back(id);
    }
    for (auto& ids : specials_by_first_byte) {
      std::stable_sort(ids.begin(), ids.end(), [this](int32_t a, int32_t b) {
        return special_name(a).size() > special_name(b).size();
      });
    }
  }
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& directory,
                                                           int64_t vocab_size) {
  SHOAL_ASSIGN_OR_RETURN(const std::string ranks,
                         ReadTextFile(absl::StrCat(directory, "/", kRankFile), kMaxFileBytes));
  SHOAL_ASSIGN_OR_RETURN(const std::string config,
                         ReadTextFile(absl::StrCat(directory, "/", kConfigFile), kMaxFileBytes));
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Parse(ranks, config, vocab_size);
  if (!tokenizer.ok()) {
    return Annotate(tokenizer.status(), directory);
  }
  return tokenizer;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Parse(absl::string_view rank_file,
                                                            absl::string_view tokenizer_config,
                                                            int64_t vocab_size) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<std::string> tokens, ParseRanks(rank_file, vocab_size));
  auto impl = std::make_unique<Impl>(std::move(tokens));
  impl->vocab_size = vocab_size;
  SHOAL_ASSIGN_OR_RETURN(std::vector<std::string> specials,
                         ParseSpecials(tokenizer_config, impl->ranks.size()));
  impl->AddSpecials(std::move(specials));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::EncodeText(absl::string_view text) const {
  std::vector<int32_t> ids;
  SplitText(text, [&](absl::string_view piece) { impl_->ranks.Encode(piece, ids); });
  return ids;
}

std::vector<int32_t> Tokenizer::EncodeWithSpecial(absl::string_view text) const {
  std::vector<int32_t> ids;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    SplitText(text.substr(begin, end - begin),
              [&](absl::string_view piece) { impl_->ranks.Encode(piece, ids); });
  };
  for (size_t at = 0; at < text.size();) {
    const std::optional<int32_t> special = impl_->SpecialAt(text.substr(at));
    if (!special) {
      ++at;
      continue;
    }
    flush(at);
    ids.push_back(*special);
    at += impl_->special_name(*special).size();
    begin = at;
  }
  flush(text.size());
  return ids;
}

std::optional<int32_t> Tokenizer::SpecialId(absl::string_view name) const {
  const auto it = impl_->special_ids.find(name);
  return it == impl_->special_ids.end() ? std::nullopt : std::optional(it->second);
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= impl_->ranks.size() &&
         id < impl_->ranks.size() + static_cast<int64_t>(impl_->specials.size());
}

absl::StatusOr<absl::string_view> Tokenizer::TokenBytes(int32_t id) const {
  if (id >= 0 && id < impl_->ranks.size()) {
    return absl::string_view(impl_->ranks.token(id));
  }
  if (IsSpecial(id)) {
    return absl::string_view(impl_->special_name(id));
  }
  return absl::OutOfRangeError(
      absl::StrCat("token id ", id, "; ids with a token are 0 to ",
                   impl_->ranks.size() + static_cast<int64_t>(impl_->specials.size()) - 1));
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    SHOAL_ASSIGN_OR_RETURN(const absl::string_view bytes, TokenBytes(id));
    absl::StrAppend(&text, bytes);
  }
  return text;
}

int64_t Tokenizer::vocab_size() const { return impl_->vocab_size; }

}  // namespace shoal

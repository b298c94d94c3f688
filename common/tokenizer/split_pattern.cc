#include "common/tokenizer/split_pattern.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>

#include <algorithm>
#include <span>
#include <vector>

#include "common/tokenizer/utf8.h"

namespace shoal {
namespace {

constexpr size_t kMaxBlockCharacters = 400'000;
constexpr size_t kMaxRunCharacters = 25'000;

// Classes of a character that the pattern asks for.
enum : uint8_t {
  kHan = 1,
  kLetter = 2,
  kNumber = 4,
  kSpace = 8,
  kUpperish = 16,  // Lu Lt Lm Lo M, not Han
  kLowerish = 32,  // Ll Lm Lo M, not Han
  kNewline = 64,   // \r or \n
};

struct Character {
  int32_t code_point = 0;
  uint8_t classes = 0;
  uint32_t offset_bytes = 0;
};

uint8_t Classify(int32_t c) {
  const uint32_t type = U_GET_GC_MASK(c);
  UErrorCode error = U_ZERO_ERROR;
  const bool han = uscript_getScript(c, &error) == USCRIPT_HAN;
  uint8_t classes = 0;
  classes |= han ? kHan : 0;
  classes |= (type & U_GC_L_MASK) != 0 ? kLetter : 0;
  classes |= (type & U_GC_N_MASK) != 0 ? kNumber : 0;
  classes |= u_isUWhiteSpace(c) != 0 ? kSpace : 0;
  classes |= c == '\r' || c == '\n' ? kNewline : 0;
  constexpr uint32_t kBoth = U_GC_LM_MASK | U_GC_LO_MASK | U_GC_M_MASK;
  if (!han) {
    classes |= (type & (U_GC_LU_MASK | U_GC_LT_MASK | kBoth)) != 0 ? kUpperish : 0;
    classes |= (type & (U_GC_LL_MASK | kBoth)) != 0 ? kLowerish : 0;
  }
  return classes;
}

// White space as the published tokenizer's cutting of long runs sees it (Python's str.isspace):
// wider than White_Space by U+001C..U+001F.
bool IsPythonSpace(int32_t c) {
  const UCharDirection direction = u_charDirection(c);
  return u_charType(c) == U_SPACE_SEPARATOR || direction == U_WHITE_SPACE_NEUTRAL ||
         direction == U_BLOCK_SEPARATOR || direction == U_SEGMENT_SEPARATOR;
}

// Matches at one position of a text. All functions return the end of the match, or the start where
// there is none.
class Matcher {
 public:
  explicit Matcher(std::span<const Character> text) : text_(text) {}

  size_t Match(size_t at) const {
    if (Is(at, kHan)) {
      return RunEnd(at, kHan);
    }
    if (const size_t end = WithLead(at, &Matcher::LowerWord); end != at) {
      return end;
    }
    if (const size_t end = WithLead(at, &Matcher::UpperWord); end != at) {
      return end;
    }
    if (Is(at, kNumber)) {
      return std::min(RunEnd(at, kNumber), at + 3);
    }
    if (const size_t end = Symbols(at); end != at) {
      return end;
    }
    if (Is(at, kSpace)) {
      return Spaces(at);
    }
    return at + 1;
  }

 private:
  bool Is(size_t at, uint8_t classes) const {
    return at < text_.size() && (text_[at].classes & classes) != 0;
  }
  bool IsOther(size_t at, uint8_t classes) const {
    return at < text_.size() && (text_[at].classes & classes) == 0;
  }
  size_t RunEnd(size_t at, uint8_t classes) const {
    while (Is(at, classes)) {
      ++at;
    }
    return at;
  }

  // [^\r\n\p{L}\p{N}]? before a word: taken if the word still matches behind it.
  size_t WithLead(size_t at, size_t (Matcher::*word)(size_t) const) const {
    if (IsOther(at, kNewline | kLetter | kNumber)) {
      if (const size_t end = (this->*word)(at + 1); end != at + 1) {
        return end;
      }
    }
    return (this->*word)(at);
  }

  // Upperish* Lowerish+ contraction?
  size_t LowerWord(size_t at) const {
    const size_t upper_end = RunEnd(at, kUpperish);
    if (const size_t end = RunEnd(upper_end, kLowerish); end != upper_end) {
      return Contraction(end);
    }
    // Give back: the last character of the run that is lowerish too ends the word.
    for (size_t last = upper_end; last > at; --last) {
      if (Is(last - 1, kLowerish)) {
        return Contraction(last);
      }
    }
    return at;
  }

  // Upperish+ Lowerish* contraction?
  size_t UpperWord(size_t at) const {
    const size_t upper_end = RunEnd(at, kUpperish);
    return upper_end == at ? at : Contraction(RunEnd(upper_end, kLowerish));
  }

  // (?i:'s|'t|'re|'ve|'m|'ll|'d)?
  size_t Contraction(size_t at) const {
    if (at >= text_.size() || text_[at].code_point != '\'') {
      return at;
    }
    const int32_t first = Folded(at + 1);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') {
      return at + 2;
    }
    const int32_t second = Folded(at + 2);
    const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
    return two ? at + 3 : at;
  }
  // Simple case folding: U+017F (long s) folds to s.
  int32_t Folded(size_t at) const {
    return at < text_.size() ? u_foldCase(text_[at].code_point, U_FOLD_CASE_DEFAULT) : -1;
  }

  //  ?[^\s\p{L}\p{N}]+[\r\n]*
  size_t Symbols(size_t at) const {
    constexpr uint8_t kExcluded = kSpace | kLetter | kNumber;
    const size_t begin = text_[at].code_point == ' ' ? at + 1 : at;
    size_t end = begin;
    while (IsOther(end, kExcluded)) {
      ++end;
    }
    return end == begin ? at : RunEnd(end, kNewline);
  }

  // \s*[\r\n]+ | \s+(?!\S) | \s+
  size_t Spaces(size_t at) const {
    const size_t end = RunEnd(at, kSpace);
    for (size_t last = end; last > at; --last) {
      if (Is(last - 1, kNewline)) {
        return last;
      }
    }
    return end == text_.size() || end == at + 1 ? end : end - 1;
  }

  std::span<const Character> text_;
};

// Splits one stretch of well-formed text that needs no cutting.
void SplitStretch(absl::string_view text, std::span<const Character> characters,
                  const std::function<void(absl::string_view)>& emit) {
  if (characters.empty()) {
    return;
  }
  const Matcher matcher(characters);
  const size_t text_end = text.size();
  for (size_t at = 0; at < characters.size();) {
    const size_t end = matcher.Match(at);
    const size_t begin_bytes = characters[at].offset_bytes;
    const size_t end_bytes = end < characters.size() ? characters[end].offset_bytes : text_end;
    emit(text.substr(begin_bytes, end_bytes - begin_bytes));
    at = end;
  }
}

// Collects characters of a stretch and splits them when it ends.
class Stretch {
 public:
  explicit Stretch(const std::function<void(absl::string_view)>& emit) : emit_(emit) {}

  // Adds the character that begins at byte `offset` of `text`.
  void Add(absl::string_view text, size_t offset, int32_t code_point) {
    const bool space = IsPythonSpace(code_point);
    run_ = !characters_.empty() && space == run_is_space_ ? run_ + 1 : 1;
    run_is_space_ = space;
    if (run_ > kMaxRunCharacters) {
      Split(text, offset);
      run_ = 1;
    }
    if (characters_.empty()) {
      begin_ = offset;
    }
    characters_.push_back(
        {code_point, Classify(code_point), static_cast<uint32_t>(offset - begin_)});
  }

  // Ends the stretch before byte `end` of `text`.
  void Split(absl::string_view text, size_t end) {
    if (!characters_.empty()) {
      SplitStretch(text.substr(begin_, end - begin_), characters_, emit_);
      characters_.clear();
    }
  }

 private:
  const std::function<void(absl::string_view)>& emit_;
  std::vector<Character> characters_;
  size_t begin_ = 0;
  size_t run_ = 0;
  bool run_is_space_ = false;
};

}  // namespace

void SplitText(absl::string_view text, const std::function<void(absl::string_view)>& emit) {
  Stretch stretch(emit);
  size_t block_characters = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = DecodeUtf8(text.substr(at));
    if (step.kind != Utf8Step::Kind::kCharacter) {
      stretch.Split(text, at);
      for (size_t i = 0; i < step.length; ++i) {
        emit(text.substr(at + i, 1));
      }
    } else {
      if (block_characters == kMaxBlockCharacters) {
        stretch.Split(text, at);
        block_characters = 0;
      }
      stretch.Add(text, at, step.code_point);
      ++block_characters;
    }
    at += step.length;
  }
  stretch.Split(text, text.size());
}

}  // namespace shoal

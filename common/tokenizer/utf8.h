// UTF-8, one character at a time, with every malformed input defined.
#ifndef SHOAL_COMMON_TOKENIZER_UTF8_H_
#define SHOAL_COMMON_TOKENIZER_UTF8_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace shoal {

struct Utf8Step {
  enum class Kind {
    kCharacter,  // `code_point` in `length` bytes
    kInvalid,  // `length` bytes that no continuation can make valid (a maximal subpart: one U+FFFD)
    kIncomplete,  // the text ends inside a character that is valid so far; `length` bytes
  };
  Kind kind = Kind::kInvalid;
  int32_t code_point = 0;
  size_t length = 0;
};

// Decodes what begins at `text`, which is not empty. Overlong forms, surrogates and values above
// U+10FFFF are invalid (Unicode 15, table 3-7; maximal subparts as in section 3.9).
Utf8Step DecodeUtf8(absl::string_view text);

}  // namespace shoal

#endif  // SHOAL_COMMON_TOKENIZER_UTF8_H_

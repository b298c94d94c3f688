// The pattern that cuts text into pieces before byte-pair encoding, as the Kimi tokenizers write it
// (eight alternatives, the first that matches wins; && is intersection):
//
//   1  [\p{Han}]+
//   2  [^\r\n\p{L}\p{N}]? U* L+ C?
//   3  [^\r\n\p{L}\p{N}]? U+ L* C?
//   4  \p{N}{1,3}
//   5   ?[^\s\p{L}\p{N}]+[\r\n]*
//   6  \s*[\r\n]+
//   7  \s+(?!\S)
//   8  \s+
//
// where U is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]], L is
// [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]] and C is (?i:'s|'t|'re|'ve|'m|'ll|'d).
//
// Character classes come from ICU: \s is the White_Space property, \p{Han} the script. Matching is
// linear in the length of a piece: no backtracking engine that a long run could exhaust.
#ifndef SHOAL_COMMON_TOKENIZER_SPLIT_PATTERN_H_
#define SHOAL_COMMON_TOKENIZER_SPLIT_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"

namespace shoal {

// Calls `emit` for every piece of `text`, in order; together they are the text. Bytes that are not
// UTF-8 are pieces of one byte each. Text is cut first where the published tokenizer cuts it: every
// 400,000 characters, and after 25,000 white-space or other characters in a row.
void SplitText(absl::string_view text, const std::function<void(absl::string_view)>& emit);

}  // namespace shoal

#endif  // SHOAL_COMMON_TOKENIZER_SPLIT_PATTERN_H_

#include <string>

#include "common/status/status_macros.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace shoal {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

// Moves from `pending` to the result everything but a character that may still become whole.
std::string TakeComplete(std::string& pending) {
  std::string text;
  absl::string_view rest = pending;
  while (!rest.empty()) {
    const Utf8Step step = DecodeUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) {
      break;
    }
    if (step.kind == Utf8Step::Kind::kCharacter) {
      text.append(rest.data(), step.length);
    } else {
      text += kReplacement;
    }
    rest.remove_prefix(step.length);
  }
  pending = std::string(rest);
  return text;
}

}  // namespace

absl::StatusOr<std::string> StreamingDetokenizer::Push(int32_t id) {
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view bytes, tokenizer_.TokenBytes(id));
  if (!tokenizer_.IsSpecial(id)) {
    pending_.append(bytes.data(), bytes.size());
  }
  return TakeComplete(pending_);
}

std::string StreamingDetokenizer::Flush() {
  std::string text = TakeComplete(pending_);
  if (!pending_.empty()) {
    text += kReplacement;
    pending_.clear();
  }
  return text;
}

}  // namespace shoal

// Feeds arbitrary bytes to the bundled model's tokenizer, as text and as a chat message, and decodes
// them again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "common/tokenizer/utf8.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

const shoal::Tokenizer& BundledTokenizer() {
  static const shoal::Tokenizer* const tokenizer = [] {
    auto loaded = shoal::Tokenizer::Load(SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear", 4096);
    Expect(loaded.ok());
    return std::move(loaded).value().release();
  }();
  return *tokenizer;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const shoal::Utf8Step step = shoal::DecodeUtf8(text);
    if (step.kind != shoal::Utf8Step::Kind::kCharacter) {
      return false;
    }
    text.remove_prefix(step.length);
  }
  return true;
}

std::string Streamed(const shoal::Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  shoal::StreamingDetokenizer stream(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const auto piece = stream.Push(id);
    Expect(piece.ok() && IsUtf8(*piece));
    text += *piece;
  }
  return text + stream.Flush();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const shoal::Tokenizer& tokenizer = BundledTokenizer();
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto is_special = [&](int32_t id) { return tokenizer.IsSpecial(id); };

  const std::vector<int32_t> ids = tokenizer.EncodeText(text);
  Expect(tokenizer.Decode(ids).value() == text);
  Expect(std::none_of(ids.begin(), ids.end(), is_special));
  Expect(tokenizer.Decode(tokenizer.EncodeWithSpecial(text)).value() == text);

  const std::string streamed = Streamed(tokenizer, ids);
  Expect(IsUtf8(streamed));
  Expect(!IsUtf8(text) || streamed == text);

  // A message is its frame of three control tokens around the text, whatever that is.
  const auto chat = shoal::ChatTemplate::Make(tokenizer);
  Expect(chat.ok());
  const std::vector<int32_t> message = chat->Message({shoal::ChatRole::kUser, text});
  Expect(std::count_if(message.begin(), message.end(), is_special) == 3);
  Expect(tokenizer.Decode(message).value() ==
         absl::StrCat("<|im_user|>user<|im_middle|>", text, "<|im_end|>"));
  return 0;
}

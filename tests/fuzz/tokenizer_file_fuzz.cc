// Feeds the reader of the tokenizer's files. Input: the text of tiktoken.model, a zero byte,
// tokenizer_config.json.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kVocabSize = 600;
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t ranks_end = input.find('\0');
  if (ranks_end == absl::string_view::npos) {
    return 0;
  }
  const auto tokenizer =
      shoal::Tokenizer::Parse(input.substr(0, ranks_end), input.substr(ranks_end + 1), kVocabSize);
  if (!tokenizer.ok()) {
    return 0;
  }
  // What an accepted tokenizer promises: any bytes round-trip, every id has bytes, a special name is
  // found.
  std::string text;
  for (int32_t id = 0; id < kVocabSize; ++id) {
    const auto bytes = (*tokenizer)->TokenBytes(id);
    if (!bytes.ok()) {
      break;
    }
    text.append(bytes->data(), bytes->size());
    if ((*tokenizer)->IsSpecial(id) && (*tokenizer)->SpecialId(*bytes) != id) {
      std::abort();
    }
  }
  for (const auto& ids : {(*tokenizer)->EncodeText(text), (*tokenizer)->EncodeWithSpecial(text)}) {
    const auto decoded = (*tokenizer)->Decode(ids);
    if (!decoded.ok() || *decoded != text) {
      std::abort();
    }
  }
  return 0;
}

// The tiktoken tokenizer of the Kimi models: byte-level BPE with ranks from tiktoken.model, Kimi's
// split pattern, and special tokens named in tokenizer_config.json.
#ifndef SHOAL_COMMON_TOKENIZER_TOKENIZER_H_
#define SHOAL_COMMON_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Thread-safe after Load.
class Tokenizer {
 public:
  // Reads DIR/tiktoken.model and DIR/tokenizer_config.json. `vocab_size` is the model's: special
  // ids beyond it are left out.
  //   NOT_FOUND          a file is missing
  //   INVALID_ARGUMENT   a malformed line, a duplicate token or rank, ranks that are not 0..n-1,
  //   one of the 256 single bytes
  //                      missing, a special id that is out of range or names a base token, an empty
  //                      or doubled special name; names file, line and value
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& directory,
                                                         int64_t vocab_size);
  // The same from the texts of the two files (what the fuzzer drives).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Parse(absl::string_view rank_file,
                                                          absl::string_view tokenizer_config,
                                                          int64_t vocab_size);
  ~Tokenizer();

  // Ids of a text in which nothing is special: what users type. Bytes that are not UTF-8 are
  // encoded as they are, byte by byte, so that any input round-trips through Decode.
  std::vector<int32_t> EncodeText(absl::string_view text) const;
  // Ids of a text in which special names are recognised (longest first): markup that we or an
  // operator wrote.
  std::vector<int32_t> EncodeWithSpecial(absl::string_view text) const;
  // Id of a special token by name, where it exists.
  std::optional<int32_t> SpecialId(absl::string_view name) const;
  bool IsSpecial(int32_t id) const;

  // Bytes of one token (for a special token its name). OUT_OF_RANGE for an id outside the
  // vocabulary, with the range.
  absl::StatusOr<absl::string_view> TokenBytes(int32_t id) const;
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids) const;

  int64_t vocab_size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns tokens into text as they come: UTF-8 sequences that are split over tokens are held back
// until whole. Bytes that can never become valid UTF-8 come out as U+FFFD, as in the usual
// "replace" decoding.
class StreamingDetokenizer {
 public:
  // `tokenizer` outlives this object.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Text that became complete with this token, maybe empty. Special tokens give nothing.
  absl::StatusOr<std::string> Push(int32_t id);
  // What was held back, with U+FFFD for an incomplete sequence. The object can be used again.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  std::string pending_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TOKENIZER_TOKENIZER_H_

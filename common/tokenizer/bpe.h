// Byte-pair encoding of one piece of text in the manner of tiktoken.
#ifndef SHOAL_COMMON_TOKENIZER_BPE_H_
#define SHOAL_COMMON_TOKENIZER_BPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Token bytes and their ranks, which are their ids.
class BpeRanks {
 public:
  // tokens[rank] are the bytes of each token; all different, and every single byte is among them.
  explicit BpeRanks(std::vector<std::string> tokens);
  // Moving keeps the strings' places; copying would not.
  BpeRanks(BpeRanks&&) = default;
  BpeRanks& operator=(BpeRanks&&) = default;
  BpeRanks(const BpeRanks&) = delete;
  BpeRanks& operator=(const BpeRanks&) = delete;

  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::string& token(int32_t rank) const { return tokens_[static_cast<size_t>(rank)]; }

  // Appends the ids of `piece`: its own, where it is a token; else its bytes, merged pairwise,
  // always the adjacent pair whose joined bytes have the lowest rank, leftmost on ties, until no
  // pair is a token. O(n log n) in the length of the piece.
  void Encode(absl::string_view piece, std::vector<int32_t>& ids) const;

 private:
  // Rank of a token, or -1.
  int32_t Rank(absl::string_view bytes) const;

  std::vector<std::string> tokens_;
  absl::flat_hash_map<absl::string_view, int32_t> ranks_;  // views of tokens_
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TOKENIZER_BPE_H_

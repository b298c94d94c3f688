// Multi-head latent attention in absorbed form, for one query and some of its heads (DeepSeek-V2, arXiv
// 2405.04434, section 2.1).
#ifndef SHOAL_KERNELS_LATENT_ATTENTION_H_
#define SHOAL_KERNELS_LATENT_ATTENTION_H_

#include <cstdint>

namespace shoal {

// Positions are taken in blocks that start at absolute multiples of this, whatever the chunk, so
// that decode, prefill and a restored cache add in the same order.
inline constexpr int64_t kLatentBlock = 64;
// Heads at a time: a block of the cache, which they share, is read from memory once for all of them. Their number
// changes no bit.
inline constexpr int64_t kMostLatentHeads = 8;

// For every head: out[r] = sum_s softmax_s(scale * query . cache_s) * cache_s[r] for r < latent_size and s in
// [0, num_positions).
//   query  [num_heads, latent_size + shared_size]: the query folded through the key half of kv_b_proj, then
//          its shared part
//   cache  row s at cache + s * (latent_size + shared_size): the normed latent, then the shared key
//   out    [num_heads, latent_size]
// Online softmax over blocks: scores are 16 float lanes (fused, folded 8, 4, 2, 1) times scale;
// when a block raises the maximum, sum and accumulators are rescaled; within a block positions are
// added in order with fused multiply-adds in float, weights in double.
struct LatentAttentionArgs {
  int64_t latent_size = 0;
  int64_t shared_size = 0;
  int64_t num_positions = 0;
  int64_t num_heads = 1;  // at most kMostLatentHeads
  double scale = 0;
  const float* query = nullptr;
  const float* cache = nullptr;
  float* out = nullptr;

  int64_t row_size() const { return latent_size + shared_size; }
};
// Thread-safe.
void LatentAttention(const LatentAttentionArgs& args);

// The two products of a block: positions [begin, begin + count) of the cache, count <= kLatentBlock.
//   scores[h][s] = scale * (query of head h . cache row begin + s)
//   out[h] += sum over s, in order, of weights[h][s] * the latent of row begin + s
struct LatentBlock {
  int64_t begin = 0;
  int64_t count = 0;
};
using LatentScores = double[kMostLatentHeads][kLatentBlock];
using LatentWeights = float[kMostLatentHeads][kLatentBlock];
void ScoreLatents(const LatentAttentionArgs& args, const LatentBlock& block, LatentScores& scores);
void AddLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                const LatentWeights& weights);
// In plain C++, one element after the other: the definition that these are tested against, and what they do where sizes
// do not fill 16 lanes or the CPU has no fused multiply-adds.
void ScalarScoreLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                        LatentScores& scores);
void ScalarAddLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                      const LatentWeights& weights);

}  // namespace shoal

#endif  // SHOAL_KERNELS_LATENT_ATTENTION_H_

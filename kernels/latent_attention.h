// Multi-head latent attention in absorbed form, for one head and one query (DeepSeek-V2, arXiv
// 2405.04434, section 2.1).
#ifndef SHOAL_KERNELS_LATENT_ATTENTION_H_
#define SHOAL_KERNELS_LATENT_ATTENTION_H_

#include <cstdint>

namespace shoal {

// Positions are taken in blocks that start at absolute multiples of this, whatever the chunk, so
// that decode, prefill and a restored cache add in the same order.
inline constexpr int64_t kLatentBlock = 64;

// out[r] = sum_s softmax_s(scale * query . cache_s) * cache_s[r] for r < latent_size and s in
// [0, num_positions).
//   query  [latent_size + shared_size]: the query folded through the key half of kv_b_proj, then
//          its shared part
//   cache  row s at cache + s * (latent_size + shared_size): the normed latent, then the shared key
// Online softmax over blocks: scores are 16 float lanes (fused, folded 8, 4, 2, 1) times scale;
// when a block raises the maximum, sum and accumulators are rescaled; within a block positions are
// added in order with fused multiply-adds in float, weights in double.
struct LatentAttentionArgs {
  int64_t latent_size = 0;
  int64_t shared_size = 0;
  int64_t num_positions = 0;
  double scale = 0;
  const float* query = nullptr;
  const float* cache = nullptr;
  float* out = nullptr;
};
void LatentAttention(const LatentAttentionArgs& args);

}  // namespace shoal

#endif  // SHOAL_KERNELS_LATENT_ATTENTION_H_

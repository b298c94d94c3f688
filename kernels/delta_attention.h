// Kimi Delta Attention: short convolution, gates and the delta-rule recurrence of one head.
//
// Source: Kimi Linear (arXiv 2510.26692) and its published kernels; restated in docs/design.md.
// Always evaluated as the recurrence, token by token, so that prefill in chunks of any size, decode
// and a restored state agree to the bit.
#ifndef SHOAL_KERNELS_DELTA_ATTENTION_H_
#define SHOAL_KERNELS_DELTA_ATTENTION_H_

#include <cstdint>
#include <span>

namespace shoal {

// Causal depthwise convolution followed by SiLU, over channels [channel_begin, channel_end):
//   out[t, c] = silu(sum_{j < kernel} taps[c, j] * x_{t - kernel + 1 + j}[c])
// so that tap kernel - 1 meets the current token. `x` and `out` are [num_tokens, channels] (`out`
// may not be `x`); inputs before the chunk come from tail_in [kernel - 1, channels], oldest first;
// tail_out receives the last kernel - 1 inputs (may not be tail_in). Sums in double, j in order.
struct ShortConvArgs {
  int64_t num_tokens = 0;
  int64_t channels = 0;
  int64_t kernel = 0;
  const float* x = nullptr;
  const float* taps = nullptr;  // [channels, kernel]
  const float* tail_in = nullptr;
  float* tail_out = nullptr;
  float* out = nullptr;
};
void ShortConv(const ShortConvArgs& args, int64_t channel_begin, int64_t channel_end);

// x /= sqrt(sum(x^2) + 1e-6), then * scale: the L2 norm of q and k over one head.
void L2Normalize(std::span<float> x, double scale);

// exp(-exp(a_log) * softplus(z)) for one head: the decay of every key channel, in (0, 1]. z already
// contains dt_bias.
void DecayGate(double a_log, std::span<const float> z, std::span<float> decay);

// The recurrence of one head over a chunk. Vectors of token t start at base + t * stride.
//   S *= decay (along keys);  u = S k;  S += beta (v - u) k^T;  o = S q
// with S [value, key] row-major. state_in and state_out are [head_dim, head_dim] and may be the
// same. Sums over keys are 16 float lanes with fused multiply-adds, folded 8, 4, 2, 1.
struct DeltaHeadArgs {
  int64_t num_tokens = 0;
  int64_t head_dim = 0;
  int64_t stride = 0;  // of q, k, v, decay and out, in floats
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  const float* decay = nullptr;
  const float* beta = nullptr;  // of token t: beta[t * beta_stride]
  int64_t beta_stride = 0;
  const float* state_in = nullptr;
  float* state_out = nullptr;
  float* out = nullptr;
};
void DeltaAttentionHead(const DeltaHeadArgs& args);
// In plain C++, one element after the other: the definition that DeltaAttentionHead is tested against, and what it does
// where head_dim does not fill 16 lanes or the CPU has no fused multiply-adds.
void ScalarDeltaAttentionHead(const DeltaHeadArgs& args);

// out[i] = RmsNorm(o; weight, eps)[i] * sigmoid(gate[i]) over one head: norm first, then gate.
// `out` may be `o`.
void GatedHeadNorm(std::span<const float> o, std::span<const float> weight, double eps,
                   std::span<const float> gate, std::span<float> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_DELTA_ATTENTION_H_

#include <array>
#include <cmath>
#include <span>

#include "coordinator/model/forward.h"
#include "coordinator/model/linear.h"
#include "kernels/activation.h"
#include "kernels/delta_attention.h"

namespace shoal {
namespace {

// Projection, short convolution and SiLU of one of q, k, v; updates its convolution tail.
void ProjectAndConvolve(ForwardContext& context, LinearInput& input, const Matrix& projection,
                        std::span<const float> taps, std::span<const float> tail_in,
                        std::span<float> tail_out, int64_t num_rows, std::span<float> out) {
  Workspace& w = context.workspace;
  input.Apply(projection, w.delta_raw);
  ShortConvArgs args;
  args.num_tokens = num_rows;
  args.channels = projection.rows;
  args.kernel = context.config.delta.conv_kernel_size;
  args.x = w.delta_raw.data();
  args.taps = taps.data();
  args.tail_in = tail_in.data();
  args.tail_out = tail_out.data();
  args.out = out.data();
  constexpr int64_t kCostPerValue = 40;  // the convolution and an exponential
  context.loops.ForPieces(args.channels, num_rows * kCostPerValue,
                          [&](int64_t begin, int64_t end) { ShortConv(args, begin, end); });
}

// Turns w.delta_decay from W_fb W_fa x into decays, and normalises q and k, for one head of every
// row.
void PrepareHead(ForwardContext& context, const DeltaWeights& weights, int64_t head,
                 int64_t num_rows) {
  Workspace& w = context.workspace;
  const auto head_dim = static_cast<size_t>(context.config.delta.head_dim);
  const size_t width = static_cast<size_t>(context.config.delta.num_heads) * head_dim;
  const size_t offset = static_cast<size_t>(head) * head_dim;
  const double query_scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    const size_t at = r * width + offset;
    L2Normalize(w.delta_q.subspan(at, head_dim), query_scale);
    L2Normalize(w.delta_k.subspan(at, head_dim), 1.0);
    const auto decay = w.delta_decay.subspan(at, head_dim);
    for (size_t d = 0; d < head_dim; ++d) {
      decay[d] += weights.dt_bias[offset + d];
    }
    DecayGate(weights.a_log[static_cast<size_t>(head)], decay, decay);
  }
}

void RunHead(ForwardContext& context, const DeltaWeights& weights, int64_t layer, int64_t head,
             int64_t num_rows) {
  Workspace& w = context.workspace;
  const DeltaConfig& config = context.config.delta;
  const int64_t offset = head * config.head_dim;
  const int64_t state_offset = head * config.head_dim * config.head_dim;
  DeltaHeadArgs args;
  args.num_tokens = num_rows;
  args.head_dim = config.head_dim;
  args.stride = config.num_heads * config.head_dim;
  args.q = w.delta_q.data() + offset;
  args.k = w.delta_k.data() + offset;
  args.v = w.delta_v.data() + offset;
  args.decay = w.delta_decay.data() + offset;
  args.beta = w.delta_beta.data() + head;
  args.beta_stride = config.num_heads;
  args.state_in = context.state.current(layer).recurrent.data() + state_offset;
  args.state_out = context.state.next(layer).recurrent.data() + state_offset;
  args.out = w.delta_out.data() + offset;
  DeltaAttentionHead(args);
  const auto head_dim = static_cast<size_t>(config.head_dim);
  for (int64_t r = 0; r < num_rows; ++r) {
    const auto at = static_cast<size_t>(r * args.stride + offset);
    const auto o = w.delta_out.subspan(at, head_dim);
    GatedHeadNorm(o, weights.o_norm, context.config.rms_norm_eps,
                  w.delta_gate.subspan(at, head_dim), o);
  }
}

}  // namespace

void DeltaAttentionBlock(ForwardContext& context, int64_t layer, int64_t num_rows) {
  Workspace& w = context.workspace;
  const DeltaWeights& weights = *context.weights.layers[static_cast<size_t>(layer)].delta;
  const DeltaConfig& config = context.config.delta;
  LinearInput input(w, context.loops, w.normed, num_rows, context.config.hidden_size);

  const std::array<const Matrix*, 3> projections = {&weights.q_proj, &weights.k_proj,
                                                    &weights.v_proj};
  const std::array<std::span<const float>, 3> taps = {weights.q_conv, weights.k_conv,
                                                      weights.v_conv};
  const std::array<std::span<float>, 3> outputs = {w.delta_q, w.delta_k, w.delta_v};
  for (size_t i = 0; i < projections.size(); ++i) {
    ProjectAndConvolve(context, input, *projections[i], taps[i],
                       context.state.current(layer).tails[i], context.state.next(layer).tails[i],
                       num_rows, outputs[i]);
  }
  input.Apply(weights.b_proj, w.delta_beta);
  SigmoidInPlace(w.delta_beta.first(static_cast<size_t>(num_rows * config.num_heads)));

  // The two low-rank gates share delta_low, and making an input for it drops the quantized rows of
  // `input`: so g_a, which reads the layer's input, is applied (into delta_raw) before either
  // low-rank product is expanded.
  input.Apply(weights.f_a_proj, w.delta_low);
  input.Apply(weights.g_a_proj, w.delta_raw);
  LinearInput decay_input(w, context.loops, w.delta_low, num_rows, config.head_dim);
  decay_input.Apply(weights.f_b_proj, w.delta_decay);
  LinearInput gate_input(w, context.loops, w.delta_raw, num_rows, config.head_dim);
  gate_input.Apply(weights.g_b_proj, w.delta_gate);

  const int64_t head_cost = num_rows * config.head_dim * (4 * config.head_dim + 100);
  context.loops.ForPieces(config.num_heads, head_cost, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      PrepareHead(context, weights, head, num_rows);
      RunHead(context, weights, layer, head, num_rows);
    }
  });
  LinearInput output(w, context.loops, w.delta_out, num_rows, config.num_heads * config.head_dim);
  output.Apply(weights.o_proj, w.block_out);
}

}  // namespace shoal

#include <algorithm>
#include <cmath>
#include <span>

#include "coordinator/model/forward.h"
#include "coordinator/model/linear.h"
#include "kernels/latent_attention.h"
#include "kernels/rms_norm.h"

namespace shoal {
namespace {

// w.mla_q = the queries of all heads, [num_rows, num_heads, nope + rope].
void ProjectQueries(ForwardContext& context, const MlaWeights& weights, LinearInput& input,
                    int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaConfig& config = context.config.mla;
  if (config.q_lora_rank == 0) {
    input.Apply(weights.q_proj, w.mla_q);
    return;
  }
  input.Apply(weights.q_a_proj, w.mla_q_low);
  const auto rank = static_cast<size_t>(config.q_lora_rank);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    const auto row = w.mla_q_low.subspan(r * rank, rank);
    RmsNorm(row, weights.q_a_layernorm, config.latent_norm_eps, row);
  }
  LinearInput low(w, context.loops, w.mla_q_low, num_rows, config.q_lora_rank);
  low.Apply(weights.q_b_proj, w.mla_q);
}

// Appends the normed latent and the shared key of every row to the layer's cache.
void AppendLatents(ForwardContext& context, const MlaWeights& weights, LinearInput& input,
                   int64_t layer, int64_t first_position, int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaConfig& config = context.config.mla;
  input.Apply(weights.kv_a_proj, w.mla_kv);
  const auto rank = static_cast<size_t>(config.kv_lora_rank);
  const size_t row_size = rank + static_cast<size_t>(config.qk_rope_head_dim);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    const auto row = w.mla_kv.subspan(r * row_size, row_size);
    RmsNorm(row.first(rank), weights.kv_a_layernorm, config.latent_norm_eps, row.first(rank));
    const auto cached = context.state.latent(layer).subspan(
        (static_cast<size_t>(first_position) + r) * row_size, row_size);
    std::copy(row.begin(), row.end(), cached.begin());
  }
}

// Rows of `w` that belong to one head.
Matrix HeadOf(const Matrix& w, int64_t head, int64_t rows_per_head) {
  Matrix part = w;
  part.rows = rows_per_head;
  part.values = static_cast<const std::byte*>(w.values) +
                head * rows_per_head * RowValueBytes(w.type, w.cols);
  if (w.scales != nullptr) {
    part.scales = w.scales + head * rows_per_head * ScalesPerRow(w.type, w.cols);
  }
  return part;
}

// w.mla_query = for every head, Wk_h^T q_nope followed by the shared part of the query.
void FoldQueries(ForwardContext& context, const MlaWeights& weights, int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaConfig& config = context.config.mla;
  const int64_t head_size = config.qk_nope_head_dim + config.qk_rope_head_dim;
  const int64_t query_size = config.kv_lora_rank + config.qk_rope_head_dim;
  const int64_t query_stride = config.num_heads * query_size;
  for (int64_t head = 0; head < config.num_heads; ++head) {
    for (int64_t r = 0; r < num_rows; ++r) {
      const float* q = w.mla_q.data() + (r * config.num_heads + head) * head_size;
      std::copy(q, q + config.qk_nope_head_dim, w.mla_q_head.data() + r * config.qk_nope_head_dim);
      std::copy(q + config.qk_nope_head_dim, q + head_size,
                w.mla_query.data() + r * query_stride + head * query_size + config.kv_lora_rank);
    }
    LinearInput nope(w, context.loops, w.mla_q_head, num_rows, config.qk_nope_head_dim);
    nope.Apply(HeadOf(weights.k_up, head, config.kv_lora_rank),
               w.mla_query.subspan(static_cast<size_t>(head * query_size)), query_stride);
  }
}

void Attend(ForwardContext& context, int64_t layer, int64_t first_position, int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaConfig& config = context.config.mla;
  const int64_t query_size = config.kv_lora_rank + config.qk_rope_head_dim;
  const double scale =
      1.0 / std::sqrt(static_cast<double>(config.qk_nope_head_dim + config.qk_rope_head_dim));
  const int64_t cost = 2 * query_size * (first_position + num_rows);
  context.loops.ForPieces(num_rows * config.num_heads, cost, [&](int64_t begin, int64_t end) {
    // Heads of one row together, as many as there are of it in the piece.
    for (int64_t i = begin, count = 0; i < end; i += count) {
      count = std::min({kMostLatentHeads, config.num_heads - i % config.num_heads, end - i});
      LatentAttentionArgs args;
      args.num_heads = count;
      args.latent_size = config.kv_lora_rank;
      args.shared_size = config.qk_rope_head_dim;
      args.num_positions = first_position + i / config.num_heads + 1;
      args.scale = scale;
      args.query = w.mla_query.data() + i * query_size;
      args.cache = context.state.latent(layer).data();
      args.out = w.mla_context.data() + i * config.kv_lora_rank;
      LatentAttention(args);
    }
  });
}

// w.mla_out = for every head, Wv_h applied to its mixture of latents.
void ExpandValues(ForwardContext& context, const MlaWeights& weights, int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaConfig& config = context.config.mla;
  const int64_t out_stride = config.num_heads * config.v_head_dim;
  const auto rank = static_cast<size_t>(config.kv_lora_rank);
  for (int64_t head = 0; head < config.num_heads; ++head) {
    // The latents of one head, gathered so that rows are contiguous; mla_query is free again.
    for (int64_t r = 0; r < num_rows; ++r) {
      const float* from =
          w.mla_context.data() + (r * config.num_heads + head) * config.kv_lora_rank;
      std::copy(from, from + rank, w.mla_query.data() + r * config.kv_lora_rank);
    }
    LinearInput latents(w, context.loops, w.mla_query, num_rows, config.kv_lora_rank);
    latents.Apply(HeadOf(weights.v_up, head, config.v_head_dim),
                  w.mla_out.subspan(static_cast<size_t>(head * config.v_head_dim)), out_stride);
  }
}

}  // namespace

void MlaBlock(ForwardContext& context, int64_t layer, int64_t first_position, int64_t num_rows) {
  Workspace& w = context.workspace;
  const MlaWeights& weights = *context.weights.layers[static_cast<size_t>(layer)].mla;
  const MlaConfig& config = context.config.mla;
  LinearInput input(w, context.loops, w.normed, num_rows, context.config.hidden_size);
  AppendLatents(context, weights, input, layer, first_position, num_rows);
  ProjectQueries(context, weights, input, num_rows);
  FoldQueries(context, weights, num_rows);
  Attend(context, layer, first_position, num_rows);
  ExpandValues(context, weights, num_rows);
  LinearInput output(w, context.loops, w.mla_out, num_rows, config.num_heads * config.v_head_dim);
  output.Apply(weights.o_proj, w.block_out);
}

}  // namespace shoal

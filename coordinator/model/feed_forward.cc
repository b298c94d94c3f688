#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "coordinator/model/forward.h"
#include "coordinator/model/linear.h"
#include "kernels/activation.h"
#include "kernels/fixed_point.h"
#include "kernels/router.h"

namespace shoal {
namespace {

absl::Status RouteRows(ForwardContext& context, int64_t layer, int64_t first_position,
                       int64_t num_rows) {
  Workspace& w = context.workspace;
  const MoeConfig& config = context.config.moe;
  const MoeWeights& weights = *context.weights.layers[static_cast<size_t>(layer)].moe;
  LinearInput input(w, context.loops, w.normed, num_rows, context.config.hidden_size);
  input.Apply(weights.router, w.router_logits);
  RouterOptions options;
  options.softmax = config.scoring_function == ScoringFunction::kSoftmax;
  options.renormalize = config.renormalize;
  options.routed_scaling_factor = config.routed_scaling_factor;
  options.num_expert_group = config.num_expert_group;
  options.topk_group = config.topk_group;
  const auto num_experts = static_cast<size_t>(config.num_experts);
  const auto k = static_cast<size_t>(config.num_experts_per_token);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    if (!RouteToken(options, w.router_logits.subspan(r * num_experts, num_experts),
                    weights.e_score_correction_bias, w.router_scratch,
                    w.expert_ids.subspan(r * k, k), w.expert_weights.subspan(r * k, k))) {
      return absl::InternalError(
          absl::StrCat("layer ", layer, " position ", first_position + static_cast<int64_t>(r),
                       ": a router logit is not a number; the hidden state overflowed float32"));
    }
  }
  if (context.observer != nullptr) {
    context.observer->OnRouting(layer, first_position, num_rows,
                                w.expert_ids.first(static_cast<size_t>(num_rows) * k),
                                w.expert_weights.first(static_cast<size_t>(num_rows) * k));
  }
  return absl::OkStatus();
}

}  // namespace

void MlpBlock(ForwardContext& context, const MlpWeights& weights, int64_t num_rows) {
  Workspace& w = context.workspace;
  LinearInput input(w, context.loops, w.normed, num_rows, context.config.hidden_size);
  input.Apply(weights.gate_proj, w.ffn_gate);
  input.Apply(weights.up_proj, w.ffn_up);
  const int64_t width = weights.gate_proj.rows;
  constexpr int64_t kCostPerValue = 30;  // an exponential and a division
  context.loops.ForPieces(num_rows * width, kCostPerValue, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    SwiGlu(w.ffn_gate.subspan(static_cast<size_t>(begin), count),
           w.ffn_up.subspan(static_cast<size_t>(begin), count));
  });
  LinearInput down(w, context.loops, w.ffn_gate, num_rows, width);
  down.Apply(weights.down_proj, w.block_out);
}

absl::Status MoeBlock(ForwardContext& context, int64_t layer, int64_t first_position,
                      int64_t num_rows) {
  Workspace& w = context.workspace;
  SHOAL_RETURN_IF_ERROR(RouteRows(context, layer, first_position, num_rows));
  const auto k = static_cast<size_t>(context.config.moe.num_experts_per_token);
  const auto rows = static_cast<size_t>(num_rows);
  const size_t count = rows * static_cast<size_t>(context.config.hidden_size);

  ExpertBackend::Batch batch;
  batch.layer = layer;
  batch.num_rows = num_rows;
  batch.rows = w.normed.first(count);
  batch.expert_ids = w.expert_ids.first(rows * k);
  batch.expert_weights = w.expert_weights.first(rows * k);
  batch.call = context.call;
  batch.arithmetic = context.arithmetic;
  // The shared experts are computed while the others are read, here or on other machines.
  const auto& shared = context.weights.layers[static_cast<size_t>(layer)].moe->shared_experts;
  batch.meanwhile = [&] {
    if (shared) {
      MlpBlock(context, *shared, num_rows);
    } else {
      std::fill(w.block_out.begin(), w.block_out.begin() + static_cast<ptrdiff_t>(count), 0.0F);
    }
  };
  const auto sums = w.expert_sums.first(count);
  std::fill(sums.begin(), sums.end(), 0);
  SHOAL_RETURN_IF_ERROR(
      Annotate(context.experts->Execute(batch, {&context.whole, 1}, context.stop, sums),
               absl::StrCat("layer ", layer)));
  for (size_t i = 0; i < count; ++i) {
    w.block_out[i] += FromFixedPoint(sums[i]);
  }
  return absl::OkStatus();
}

}  // namespace shoal

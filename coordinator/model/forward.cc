#include "coordinator/model/forward.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/model/linear.h"
#include "kernels/matvec.h"
#include "kernels/rms_norm.h"

namespace shoal {
namespace {

void NormRows(ForwardContext& context, std::span<const float> weight, int64_t num_rows) {
  const auto hidden_size = static_cast<size_t>(context.config.hidden_size);
  Workspace& w = context.workspace;
  context.loops.ForPieces(num_rows, context.config.hidden_size, [&](int64_t begin, int64_t end) {
    for (auto r = static_cast<size_t>(begin); r < static_cast<size_t>(end); ++r) {
      RmsNorm(w.hidden.subspan(r * hidden_size, hidden_size), weight, context.config.rms_norm_eps,
              w.normed.subspan(r * hidden_size, hidden_size));
    }
  });
}

void AddResidual(ForwardContext& context, int64_t num_rows) {
  const auto count = static_cast<size_t>(num_rows * context.config.hidden_size);
  for (size_t i = 0; i < count; ++i) {
    context.workspace.hidden[i] += context.workspace.block_out[i];
  }
}

void Observe(ForwardContext& context, const std::string& name, int64_t first_position,
             int64_t num_rows, std::span<const float> values) {
  if (context.observer != nullptr) {
    context.observer->OnHidden(
        name, first_position, num_rows,
        values.first(static_cast<size_t>(num_rows * context.config.hidden_size)));
  }
}

absl::Status RunLayer(ForwardContext& context, int64_t layer, int64_t first_position,
                      int64_t num_rows) {
  const LayerWeights& weights = context.weights.layers[static_cast<size_t>(layer)];
  NormRows(context, weights.input_layernorm, num_rows);
  if (weights.delta) {
    DeltaAttentionBlock(context, layer, num_rows);
  } else {
    MlaBlock(context, layer, first_position, num_rows);
  }
  AddResidual(context, num_rows);
  Observe(context, absl::StrCat("after_mixer.", layer), first_position, num_rows,
          context.workspace.hidden);
  NormRows(context, weights.post_attention_layernorm, num_rows);
  if (weights.moe) {
    SHOAL_RETURN_IF_ERROR(MoeBlock(context, layer, first_position, num_rows));
  } else {
    MlpBlock(context, *weights.mlp, num_rows);
  }
  AddResidual(context, num_rows);
  Observe(context, absl::StrCat("hidden.", layer), first_position, num_rows,
          context.workspace.hidden);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunLayers(ForwardContext& context, std::span<const int32_t> ids,
                       int64_t first_position) {
  Workspace& w = context.workspace;
  const auto num_rows = static_cast<int64_t>(ids.size());
  const auto hidden_size = static_cast<size_t>(context.config.hidden_size);
  for (size_t r = 0; r < ids.size(); ++r) {
    DequantizeRow(context.weights.embedding, ids[r],
                  w.hidden.subspan(r * hidden_size, hidden_size));
  }
  Observe(context, "embedding", first_position, num_rows, w.hidden);
  for (int64_t layer = 0; layer < context.config.num_layers(); ++layer) {
    if (context.stop.stop_requested()) {
      return absl::CancelledError("stopped by the caller");
    }
    SHOAL_RETURN_IF_ERROR(RunLayer(context, layer, first_position, num_rows));
  }
  NormRows(context, context.weights.final_norm, num_rows);
  Observe(context, "final_norm", first_position, num_rows, w.normed);
  const auto values = w.normed.first(ids.size() * hidden_size);
  if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
    return absl::InternalError(
        "the hidden state after the last layer is not finite; the model's weights overflow "
        "float32");
  }
  return absl::OkStatus();
}

void ComputeLogits(ForwardContext& context, int64_t row) {
  const int64_t hidden_size = context.config.hidden_size;
  LinearInput input(context.workspace, context.loops,
                    context.workspace.normed.subspan(static_cast<size_t>(row * hidden_size)), 1,
                    hidden_size);
  input.Apply(context.weights.lm_head, context.workspace.logits);
}

}  // namespace shoal

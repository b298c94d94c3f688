#include "coordinator/model/session_state.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace shoal {
namespace {

int64_t RecurrentSize(const DeltaConfig& delta) {
  return delta.num_heads * delta.head_dim * delta.head_dim;
}

int64_t TailSize(const DeltaConfig& delta) {
  return (delta.conv_kernel_size - 1) * delta.num_heads * delta.head_dim;
}

int64_t CountLayers(const ModelConfig& config, AttentionKind kind) {
  return std::count_if(config.layers.begin(), config.layers.end(),
                       [kind](const LayerConfig& layer) { return layer.attention == kind; });
}

}  // namespace

uint64_t SessionState::KvBytesPerToken(const ModelConfig& config) {
  const int64_t row = config.mla.kv_lora_rank + config.mla.qk_rope_head_dim;
  return static_cast<uint64_t>(CountLayers(config, AttentionKind::kMla) * row) * sizeof(float);
}

uint64_t SessionState::DeltaBytes(const ModelConfig& config) {
  const int64_t one = RecurrentSize(config.delta) + 3 * TailSize(config.delta);
  return static_cast<uint64_t>(2 * CountLayers(config, AttentionKind::kDelta) * one) *
         sizeof(float);
}

absl::StatusOr<SessionState> SessionState::Allocate(const ModelConfig& config,
                                                    int64_t context_tokens) {
  SessionState state;
  const uint64_t bytes =
      KvBytesPerToken(config) * static_cast<uint64_t>(context_tokens) + DeltaBytes(config);
  SHOAL_ASSIGN_OR_RETURN(state.buffer_, AlignedBuffer::Allocate(bytes));
  std::span<float> rest = state.buffer_.as<float>();
  const auto take = [&rest](int64_t size) {
    const auto part = rest.first(static_cast<size_t>(size));
    rest = rest.subspan(static_cast<size_t>(size));
    return part;
  };
  for (const LayerConfig& kind : config.layers) {
    Layer layer;
    if (kind.attention == AttentionKind::kMla) {
      layer.latent = take(context_tokens * (config.mla.kv_lora_rank + config.mla.qk_rope_head_dim));
    } else {
      for (DeltaState& delta : layer.delta) {
        delta.recurrent = take(RecurrentSize(config.delta));
        for (auto& tail : delta.tails) {
          tail = take(TailSize(config.delta));
        }
      }
    }
    state.layers_.push_back(layer);
  }
  return state;
}

void SessionState::Clear() {
  for (Layer& layer : layers_) {
    DeltaState& delta = layer.delta[active_];
    std::fill(delta.recurrent.begin(), delta.recurrent.end(), 0.0F);
    for (auto& tail : delta.tails) {
      std::fill(tail.begin(), tail.end(), 0.0F);
    }
  }
}

}  // namespace shoal

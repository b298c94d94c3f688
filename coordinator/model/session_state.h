// What a session remembers between tokens: the latent KV cache of MLA layers, and the recurrent
// state of delta-attention layers.
#ifndef SHOAL_COORDINATOR_MODEL_SESSION_STATE_H_
#define SHOAL_COORDINATOR_MODEL_SESSION_STATE_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/aligned_buffer.h"
#include "common/model/model_config.h"

namespace shoal {

// State of one delta-attention layer, float32.
struct DeltaState {
  std::span<float> recurrent;  // [num_heads, head_dim (value), head_dim (key)]
  std::array<std::span<float>, 3>
      tails;  // q, k, v: the last conv_kernel_size - 1 projections, oldest first
};

// A chunk that fails or is cancelled half way must leave the state as it was before the chunk. MLA
// rows beyond the position are simply not looked at; delta-attention state is kept twice: a chunk
// reads `current` and writes `next`, and Commit swaps them.
class SessionState {
 public:
  // Zeroed. RESOURCE_EXHAUSTED where the system refuses memory.
  static absl::StatusOr<SessionState> Allocate(const ModelConfig& config, int64_t context_tokens);

  // Bytes Allocate takes: for the MLA cache of `context_tokens` positions, and for the
  // delta-attention states.
  static uint64_t KvBytesPerToken(const ModelConfig& config);
  static uint64_t DeltaBytes(const ModelConfig& config);

  // MLA layer's cache [context_tokens, kv_lora_rank + qk_rope_head_dim]. Empty for delta-attention
  // layers.
  std::span<float> latent(int64_t layer) { return layers_[static_cast<size_t>(layer)].latent; }
  std::span<const float> latent(int64_t layer) const {
    return layers_[static_cast<size_t>(layer)].latent;
  }
  DeltaState& current(int64_t layer) { return layers_[static_cast<size_t>(layer)].delta[active_]; }
  const DeltaState& current(int64_t layer) const {
    return layers_[static_cast<size_t>(layer)].delta[active_];
  }
  DeltaState& next(int64_t layer) { return layers_[static_cast<size_t>(layer)].delta[1 - active_]; }

  // Makes `next` the current state of all layers.
  void Commit() { active_ = 1 - active_; }
  // Back to the state before the first token.
  void Clear();

 private:
  struct Layer {
    std::span<float> latent;
    std::array<DeltaState, 2> delta;
  };
  AlignedBuffer buffer_;
  std::vector<Layer> layers_;
  size_t active_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_SESSION_STATE_H_

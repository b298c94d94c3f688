// The trunk of a model in memory: every tensor that is not a routed expert, as views into one
// buffer.
#ifndef SHOAL_COORDINATOR_MODEL_TRUNK_WEIGHTS_H_
#define SHOAL_COORDINATOR_MODEL_TRUNK_WEIGHTS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/io/aligned_buffer.h"
#include "kernels/matrix.h"

namespace shoal {

// Shapes are [out, in]; names are the published ones (common/model/tensor_names.h).
struct DeltaWeights {
  Matrix q_proj, k_proj, v_proj;  // [num_heads * head_dim, hidden_size]
  Matrix f_a_proj, f_b_proj;  // decay: [head_dim, hidden_size], [num_heads * head_dim, head_dim]
  Matrix g_a_proj, g_b_proj;  // output gate, same shapes
  Matrix b_proj;              // [num_heads, hidden_size]
  Matrix o_proj;              // [hidden_size, num_heads * head_dim]
  std::span<const float> q_conv, k_conv, v_conv;  // taps [num_heads * head_dim, conv_kernel_size]
  std::span<const float> a_log;                   // [num_heads]
  std::span<const float> dt_bias;                 // [num_heads * head_dim]
  std::span<const float> o_norm;                  // [head_dim]
};

struct MlaWeights {
  Matrix q_proj;  // [num_heads * (nope + rope), hidden_size]; unused with a q_lora_rank
  Matrix q_a_proj, q_b_proj;
  std::span<const float> q_a_layernorm;
  Matrix kv_a_proj;                       // [kv_lora_rank + rope, hidden_size]
  std::span<const float> kv_a_layernorm;  // [kv_lora_rank]
  Matrix k_up;                            // [num_heads * kv_lora_rank, nope]: per head, transposed
  Matrix v_up;                            // [num_heads * v_head_dim, kv_lora_rank]
  Matrix o_proj;                          // [hidden_size, num_heads * v_head_dim]
};

struct MlpWeights {
  Matrix gate_proj, up_proj, down_proj;
};

struct MoeWeights {
  Matrix router;                                   // [num_experts, hidden_size]
  std::span<const float> e_score_correction_bias;  // [num_experts]
  std::optional<MlpWeights> shared_experts;
};

struct LayerWeights {
  std::span<const float> input_layernorm;
  std::span<const float> post_attention_layernorm;
  std::optional<DeltaWeights> delta;  // exactly one of delta and mla
  std::optional<MlaWeights> mla;
  std::optional<MlpWeights> mlp;  // exactly one of mlp and moe
  std::optional<MoeWeights> moe;
};

// Immutable after Load; views point into the owned buffer.
class TrunkWeights {
 public:
  // Reads trunk.bin tensor by tensor and checks every CRC, and that vectors (norms, biases, taps)
  // are finite. DATA_LOSS names file and tensor.
  static absl::StatusOr<TrunkWeights> Load(const Container& container);
  // Bytes Load allocates.
  static uint64_t MemoryBytes(const Manifest& manifest);

  Matrix embedding;  // [vocab_size, hidden_size]
  Matrix lm_head;    // the embedding where tied
  std::span<const float> final_norm;
  std::vector<LayerWeights> layers;

 private:
  AlignedBuffer buffer_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_TRUNK_WEIGHTS_H_

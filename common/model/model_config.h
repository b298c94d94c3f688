// The numbers that define a model, read from a Hugging Face config.json. Names are those of the
// published configs.
#ifndef SHOAL_COMMON_MODEL_MODEL_CONFIG_H_
#define SHOAL_COMMON_MODEL_MODEL_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

enum class AttentionKind { kDelta, kMla };  // Kimi Delta Attention; multi-head latent attention
enum class ScoringFunction { kSigmoid, kSoftmax };

// Multi-head latent attention without positions (mla_use_nope).
struct MlaConfig {
  int64_t num_heads = 0;
  int64_t q_lora_rank = 0;  // 0: q is projected directly
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  double latent_norm_eps = 1e-6;
};

// Kimi Delta Attention; key and value head sizes are both head_dim.
struct DeltaConfig {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t conv_kernel_size = 0;
};

struct MoeConfig {
  int64_t num_experts = 0;  // 0: no MoE layer
  int64_t num_experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_shared_experts = 0;
  double routed_scaling_factor = 1.0;
  bool renormalize = true;
  ScoringFunction scoring_function = ScoringFunction::kSigmoid;
  int64_t num_expert_group = 1;
  int64_t topk_group = 1;
};

struct LayerConfig {
  AttentionKind attention = AttentionKind::kDelta;
  bool is_moe = false;
};

struct ModelConfig {
  std::string model_type;  // "kimi_linear"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of the dense layers; 0: there is none
  double rms_norm_eps = 0;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;  // model_max_length
  int64_t bos_token_id = -1;            // -1: none
  std::vector<int64_t> eos_token_ids;
  MlaConfig mla;
  DeltaConfig delta;
  MoeConfig moe;
  std::vector<LayerConfig> layers;  // zero-based

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Number of layers with routed experts, and the layer index (zero-based) of the i-th of them.
  int64_t num_moe_layers() const;
  std::vector<int64_t> moe_layers() const;
};

// Reads the text of a config.json. Everything the forward pass depends on is checked here:
//   UNIMPLEMENTED     a model_type, activation, scoring function, rope, quantization or other
//                     setting that we do not have: named with its value and what is supported
//   INVALID_ARGUMENT  not JSON, a key that appears twice, a missing or mistyped field, a size that
//                     is zero, negative or absurd, lists that contradict each other; names the
//                     field, its value and the accepted range
// Fields of a kind of layer that does not occur are not read and stay 0. A model has at most 2^50
// parameters, so that byte sums over it fit 64 bits. `name` is the file for messages.
absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view name);

}  // namespace shoal

#endif  // SHOAL_COMMON_MODEL_MODEL_CONFIG_H_

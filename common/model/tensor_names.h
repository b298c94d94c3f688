// Names and shapes of every tensor a checkpoint of a given config must have: the one place that
// knows them.
#ifndef SHOAL_COMMON_MODEL_TENSOR_NAMES_H_
#define SHOAL_COMMON_MODEL_TENSOR_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/model_config.h"

namespace shoal {

// How a trunk tensor may be stored in a container.
enum class TrunkRole {
  kEmbedding,   // [vocab_size, hidden_size], read by row
  kHead,        // lm_head
  kProjection,  // a Linear's weight, quantized as --trunk says
  kRouter,      // kept lossless: BF16 where the source is BF16, else F32
  kVector,      // norms, convolution taps, decay, biases: F32
  // The K rows of kv_b_proj, stored transposed per head: [num_heads * kv_lora_rank,
  // qk_nope_head_dim].
  kKeyUpProj,
  kValueUpProj,  // the V rows of kv_b_proj: [num_heads * v_head_dim, kv_lora_rank]
};

struct TrunkTensor {
  // Our name: the published one, with ".k_up" / ".v_up" in place of kv_b_proj's ".weight".
  std::string name;
  std::string source_name;  // the published tensor it is made from
  std::vector<uint64_t> source_shape;
  // As stored; differs from source_shape for the two halves of kv_b_proj.
  std::vector<uint64_t> shape;
  TrunkRole role = TrunkRole::kProjection;
};

// All trunk tensors in the order in which they are stored: embedding, layers, final norm, head
// (left out where tied). Published shapes that carry ones ([1,1,H,1], [C,1,W]) are kept in
// source_shape and flattened in shape.
std::vector<TrunkTensor> TrunkTensors(const ModelConfig& config);

// Name of one trunk tensor of a layer: LayerTensorName(3, "self_attn.o_proj.weight").
std::string LayerTensorName(int64_t layer, const char* suffix);

// Published names of one routed expert's matrices: gate and up [moe_intermediate_size,
// hidden_size], down [hidden_size, moe_intermediate_size].
struct ExpertTensorNames {
  std::string gate;
  std::string up;
  std::string down;
};
ExpertTensorNames ExpertTensors(const ModelConfig& config, int64_t layer, int64_t expert);

}  // namespace shoal

#endif  // SHOAL_COMMON_MODEL_TENSOR_NAMES_H_

#include "common/model/tensor_names.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

uint64_t U(int64_t value) { return static_cast<uint64_t>(value); }

// Collects tensors; `prefix` names the current layer.
struct TensorList {
  void Add(absl::string_view suffix, std::vector<uint64_t> shape, TrunkRole role) {
    const std::string name = absl::StrCat(prefix, suffix);
    std::vector<uint64_t> stored = shape;
    if (role == TrunkRole::kVector) {
      // Ones carry no information: [1, 1, H, 1] is [H], [C, 1, W] is [C, W].
      stored.erase(std::remove(stored.begin(), stored.end(), uint64_t{1}), stored.end());
      if (stored.empty()) {
        stored.push_back(1);
      }
    }
    tensors.push_back({name, name, std::move(shape), std::move(stored), role});
  }

  std::string prefix;
  std::vector<TrunkTensor> tensors;
};

void AddDelta(const ModelConfig& config, TensorList& list) {
  const uint64_t heads = U(config.delta.num_heads);
  const uint64_t head_dim = U(config.delta.head_dim);
  const uint64_t width = heads * head_dim;
  const uint64_t hidden = U(config.hidden_size);
  for (const char* name : {"q", "k", "v"}) {
    list.Add(absl::StrCat("self_attn.", name, "_proj.weight"), {width, hidden},
             TrunkRole::kProjection);
  }
  for (const char* name : {"q", "k", "v"}) {
    list.Add(absl::StrCat("self_attn.", name, "_conv1d.weight"),
             {width, 1, U(config.delta.conv_kernel_size)}, TrunkRole::kVector);
  }
  list.Add("self_attn.A_log", {1, 1, heads, 1}, TrunkRole::kVector);
  list.Add("self_attn.dt_bias", {width}, TrunkRole::kVector);
  list.Add("self_attn.f_a_proj.weight", {head_dim, hidden}, TrunkRole::kProjection);
  list.Add("self_attn.f_b_proj.weight", {width, head_dim}, TrunkRole::kProjection);
  list.Add("self_attn.b_proj.weight", {heads, hidden}, TrunkRole::kProjection);
  list.Add("self_attn.g_a_proj.weight", {head_dim, hidden}, TrunkRole::kProjection);
  list.Add("self_attn.g_b_proj.weight", {width, head_dim}, TrunkRole::kProjection);
  list.Add("self_attn.o_norm.weight", {head_dim}, TrunkRole::kVector);
  list.Add("self_attn.o_proj.weight", {hidden, width}, TrunkRole::kProjection);
}

void AddMla(const ModelConfig& config, TensorList& list) {
  const MlaConfig& mla = config.mla;
  const uint64_t hidden = U(config.hidden_size);
  const uint64_t query = U(mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim));
  if (mla.q_lora_rank > 0) {
    const uint64_t rank = U(mla.q_lora_rank);
    list.Add("self_attn.q_a_proj.weight", {rank, hidden}, TrunkRole::kProjection);
    list.Add("self_attn.q_a_layernorm.weight", {rank}, TrunkRole::kVector);
    list.Add("self_attn.q_b_proj.weight", {query, rank}, TrunkRole::kProjection);
  } else {
    list.Add("self_attn.q_proj.weight", {query, hidden}, TrunkRole::kProjection);
  }
  const uint64_t rank = U(mla.kv_lora_rank);
  list.Add("self_attn.kv_a_proj_with_mqa.weight", {rank + U(mla.qk_rope_head_dim), hidden},
           TrunkRole::kProjection);
  list.Add("self_attn.kv_a_layernorm.weight", {rank}, TrunkRole::kVector);
  const std::string source = absl::StrCat(list.prefix, "self_attn.kv_b_proj.weight");
  const std::vector<uint64_t> source_shape = {
      U(mla.num_heads * (mla.qk_nope_head_dim + mla.v_head_dim)), rank};
  list.tensors.push_back({absl::StrCat(list.prefix, "self_attn.kv_b_proj.k_up"),
                          source,
                          source_shape,
                          {U(mla.num_heads) * rank, U(mla.qk_nope_head_dim)},
                          TrunkRole::kKeyUpProj});
  list.tensors.push_back({absl::StrCat(list.prefix, "self_attn.kv_b_proj.v_up"),
                          source,
                          source_shape,
                          {U(mla.num_heads * mla.v_head_dim), rank},
                          TrunkRole::kValueUpProj});
  list.Add("self_attn.o_proj.weight", {hidden, U(mla.num_heads * mla.v_head_dim)},
           TrunkRole::kProjection);
}

void AddMlp(const std::string& name, int64_t hidden_size, int64_t width, TensorList& list) {
  const uint64_t hidden = U(hidden_size);
  list.Add(absl::StrCat(name, ".gate_proj.weight"), {U(width), hidden}, TrunkRole::kProjection);
  list.Add(absl::StrCat(name, ".up_proj.weight"), {U(width), hidden}, TrunkRole::kProjection);
  list.Add(absl::StrCat(name, ".down_proj.weight"), {hidden, U(width)}, TrunkRole::kProjection);
}

void AddMoe(const ModelConfig& config, TensorList& list) {
  const MoeConfig& moe = config.moe;
  list.Add("block_sparse_moe.gate.weight", {U(moe.num_experts), U(config.hidden_size)},
           TrunkRole::kRouter);
  list.Add("block_sparse_moe.gate.e_score_correction_bias", {U(moe.num_experts)},
           TrunkRole::kVector);
  if (moe.num_shared_experts > 0) {
    AddMlp("block_sparse_moe.shared_experts", config.hidden_size,
           moe.num_shared_experts * moe.moe_intermediate_size, list);
  }
}

}  // namespace

std::string LayerTensorName(int64_t layer, const char* suffix) {
  return absl::StrCat("model.layers.", layer, ".", suffix);
}

std::vector<TrunkTensor> TrunkTensors(const ModelConfig& config) {
  TensorList list;
  const uint64_t vocab = U(config.vocab_size);
  const uint64_t hidden = U(config.hidden_size);
  list.Add("model.embed_tokens.weight", {vocab, hidden}, TrunkRole::kEmbedding);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    const LayerConfig& kind = config.layers[static_cast<size_t>(layer)];
    list.prefix = LayerTensorName(layer, "");
    list.Add("input_layernorm.weight", {hidden}, TrunkRole::kVector);
    if (kind.attention == AttentionKind::kDelta) {
      AddDelta(config, list);
    } else {
      AddMla(config, list);
    }
    list.Add("post_attention_layernorm.weight", {hidden}, TrunkRole::kVector);
    if (kind.is_moe) {
      AddMoe(config, list);
    } else {
      AddMlp("mlp", config.hidden_size, config.intermediate_size, list);
    }
  }
  list.prefix.clear();
  list.Add("model.norm.weight", {hidden}, TrunkRole::kVector);
  if (!config.tie_word_embeddings) {
    list.Add("lm_head.weight", {vocab, hidden}, TrunkRole::kHead);
  }
  return std::move(list.tensors);
}

ExpertTensorNames ExpertTensors(const ModelConfig&, int64_t layer, int64_t expert) {
  const std::string prefix =
      absl::StrCat(LayerTensorName(layer, "block_sparse_moe.experts."), expert);
  return {absl::StrCat(prefix, ".w1.weight"), absl::StrCat(prefix, ".w3.weight"),
          absl::StrCat(prefix, ".w2.weight")};
}

}  // namespace shoal

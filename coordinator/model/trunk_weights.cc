#include "coordinator/model/trunk_weights.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/model/tensor_names.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr uint64_t kTensorAlignment = 64;

uint64_t AlignTensor(uint64_t bytes) {
  return (bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
}

// The loaded tensors by name. The manifest's shapes were checked against the config when the
// container was opened, so a name that is missing here is our own mistake; it is reported all the
// same.
class TensorTable {
 public:
  explicit TensorTable(const Container& container) : container_(container) {}

  absl::Status LoadAll(AlignedBuffer& buffer) {
    uint64_t offset = 0;
    for (const TrunkEntry& entry : container_.manifest().trunk) {
      const auto bytes = buffer.bytes().subspan(offset, entry.size_bytes);
      SHOAL_RETURN_IF_ERROR(container_.ReadTrunkTensor(entry, bytes));
      tensors_[entry.name] = {&entry, bytes};
      offset += AlignTensor(entry.size_bytes);
    }
    return absl::OkStatus();
  }

  void Get(const std::string& name, Matrix& matrix) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) {
      Missing(name);
      return;
    }
    const auto& [entry, bytes] = it->second;
    matrix.type = entry->type;
    matrix.rows = static_cast<int64_t>(entry->shape[0]);
    matrix.cols = static_cast<int64_t>(entry->shape.size() > 1 ? entry->shape[1] : 1);
    matrix.values = bytes.data();
    if (entry->scales_offset_bytes != 0) {
      matrix.scales = reinterpret_cast<const uint16_t*>(bytes.data() + entry->scales_offset_bytes);
    }
  }

  void Get(const std::string& name, std::span<const float>& vector) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end() || it->second.entry->type != TrunkType::kF32) {
      Missing(name);
      return;
    }
    const auto& [entry, bytes] = it->second;
    vector = {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
    CheckFinite(*entry, vector);
  }

  absl::Status status() const { return status_; }

 private:
  struct Tensor {
    const TrunkEntry* entry = nullptr;
    std::span<const std::byte> bytes;
  };

  void Missing(const std::string& name) {
    if (status_.ok()) {
      status_ = absl::InternalError(absl::StrCat("trunk tensor ", name, " was not loaded"));
    }
  }

  // The converter refuses such values, and matrices show them in the output; but a bias that is not
  // a number can leave finite output behind a wrong choice of experts.
  void CheckFinite(const TrunkEntry& entry, std::span<const float> vector) {
    const auto bad = std::find_if(vector.begin(), vector.end(),
                                  [](float value) { return !std::isfinite(value); });
    if (bad != vector.end() && status_.ok()) {
      status_ = absl::DataLossError(absl::StrCat(
          container_.PathOf(kTrunkFile), ": tensor ", entry.name, " holds ", *bad, " at element ",
          bad - vector.begin(), "; the container is damaged, convert the checkpoint again"));
    }
  }

  const Container& container_;
  absl::flat_hash_map<std::string, Tensor> tensors_;
  absl::Status status_;
};

// Names of one layer's tensors, bound to their places.
class LayerBinder {
 public:
  LayerBinder(TensorTable& table, int64_t layer) : table_(table), layer_(layer) {}

  template <typename T>
  void operator()(const char* suffix, T& target) {
    table_.Get(LayerTensorName(layer_, suffix), target);
  }

 private:
  TensorTable& table_;
  int64_t layer_;
};

DeltaWeights BindDelta(LayerBinder& bind) {
  DeltaWeights w;
  bind("self_attn.q_proj.weight", w.q_proj);
  bind("self_attn.k_proj.weight", w.k_proj);
  bind("self_attn.v_proj.weight", w.v_proj);
  bind("self_attn.f_a_proj.weight", w.f_a_proj);
  bind("self_attn.f_b_proj.weight", w.f_b_proj);
  bind("self_attn.g_a_proj.weight", w.g_a_proj);
  bind("self_attn.g_b_proj.weight", w.g_b_proj);
  bind("self_attn.b_proj.weight", w.b_proj);
  bind("self_attn.o_proj.weight", w.o_proj);
  bind("self_attn.q_conv1d.weight", w.q_conv);
  bind("self_attn.k_conv1d.weight", w.k_conv);
  bind("self_attn.v_conv1d.weight", w.v_conv);
  bind("self_attn.A_log", w.a_log);
  bind("self_attn.dt_bias", w.dt_bias);
  bind("self_attn.o_norm.weight", w.o_norm);
  return w;
}

MlaWeights BindMla(LayerBinder& bind, const MlaConfig& config) {
  MlaWeights w;
  if (config.q_lora_rank > 0) {
    bind("self_attn.q_a_proj.weight", w.q_a_proj);
    bind("self_attn.q_a_layernorm.weight", w.q_a_layernorm);
    bind("self_attn.q_b_proj.weight", w.q_b_proj);
  } else {
    bind("self_attn.q_proj.weight", w.q_proj);
  }
  bind("self_attn.kv_a_proj_with_mqa.weight", w.kv_a_proj);
  bind("self_attn.kv_a_layernorm.weight", w.kv_a_layernorm);
  bind("self_attn.kv_b_proj.k_up", w.k_up);
  bind("self_attn.kv_b_proj.v_up", w.v_up);
  bind("self_attn.o_proj.weight", w.o_proj);
  return w;
}

MlpWeights BindMlp(LayerBinder& bind, const std::string& prefix) {
  MlpWeights w;
  bind(absl::StrCat(prefix, ".gate_proj.weight").c_str(), w.gate_proj);
  bind(absl::StrCat(prefix, ".up_proj.weight").c_str(), w.up_proj);
  bind(absl::StrCat(prefix, ".down_proj.weight").c_str(), w.down_proj);
  return w;
}

MoeWeights BindMoe(LayerBinder& bind, const MoeConfig& config) {
  MoeWeights w;
  bind("block_sparse_moe.gate.weight", w.router);
  bind("block_sparse_moe.gate.e_score_correction_bias", w.e_score_correction_bias);
  if (config.num_shared_experts > 0) {
    w.shared_experts = BindMlp(bind, "block_sparse_moe.shared_experts");
  }
  return w;
}

LayerWeights BindLayer(TensorTable& table, const ModelConfig& config, int64_t layer) {
  const LayerConfig& kind = config.layers[static_cast<size_t>(layer)];
  LayerBinder bind(table, layer);
  LayerWeights w;
  bind("input_layernorm.weight", w.input_layernorm);
  bind("post_attention_layernorm.weight", w.post_attention_layernorm);
  if (kind.attention == AttentionKind::kDelta) {
    w.delta = BindDelta(bind);
  } else {
    w.mla = BindMla(bind, config.mla);
  }
  if (kind.is_moe) {
    w.moe = BindMoe(bind, config.moe);
  } else {
    w.mlp = BindMlp(bind, "mlp");
  }
  return w;
}

}  // namespace

uint64_t TrunkWeights::MemoryBytes(const Manifest& manifest) {
  uint64_t bytes = 0;
  for (const TrunkEntry& entry : manifest.trunk) {
    bytes += AlignTensor(entry.size_bytes);
  }
  return bytes;
}

absl::StatusOr<TrunkWeights> TrunkWeights::Load(const Container& container) {
  TrunkWeights weights;
  SHOAL_ASSIGN_OR_RETURN(weights.buffer_,
                         AlignedBuffer::Allocate(MemoryBytes(container.manifest())));
  TensorTable table(container);
  SHOAL_RETURN_IF_ERROR(table.LoadAll(weights.buffer_));
  const ModelConfig& config = container.config();
  table.Get("model.embed_tokens.weight", weights.embedding);
  table.Get(config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight",
            weights.lm_head);
  table.Get("model.norm.weight", weights.final_norm);
  for (int64_t layer = 0; layer < config.num_layers(); ++layer) {
    weights.layers.push_back(BindLayer(table, config, layer));
  }
  SHOAL_RETURN_IF_ERROR(table.status());
  return weights;
}

}  // namespace shoal

#include "common/model/model_config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/checked_range.h"
#include "common/io/json_fields.h"
#include "common/model/tensor_names.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// Bounds far above any published model and low enough that products of a few sizes fit 64 bits.
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeads = int64_t{1} << 12;
constexpr int64_t kMaxHeadDim = int64_t{1} << 14;
constexpr int64_t kMaxConvKernel = 64;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = int64_t{1} << 16;
constexpr int64_t kMaxExpertsPerToken = 1024;
constexpr int64_t kMaxSharedExperts = 1024;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr uint64_t kMaxParameters = uint64_t{1} << 50;  // of the whole model

// Zero would divide by zero for a vector of zeros.
constexpr double kMinEps = 1e-30;

bool IsIntegerIn(const Json& value, int64_t low, int64_t high) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <= static_cast<uint64_t>(high) && value.get<int64_t>() >= low;
  }
  return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
}

// One token id or a list of them; empty where the field is absent.
std::vector<int64_t> ReadTokenIds(JsonFields& fields, const char* field, int64_t vocab_size) {
  std::vector<int64_t> ids;
  const auto read = [&](const Json& id) {
    if (!IsIntegerIn(id, 0, vocab_size - 1)) {
      fields.Fail(field, absl::StrCat("is or holds ", Brief(id), "; token ids from 0 to ",
                                      vocab_size - 1, " are expected"));
      return;
    }
    ids.push_back(id.get<int64_t>());
  };
  if (const Json* value = fields.Find(field); value != nullptr && value->is_array()) {
    std::for_each(value->begin(), value->end(), read);
  } else if (value != nullptr) {
    read(*value);
  }
  return ids;
}

// A list of one-based layer numbers, each at most once.
std::set<int64_t> ReadLayerNumbers(JsonFields& fields, const char* field, int64_t num_layers) {
  std::set<int64_t> layers;
  for (const Json& layer : fields.Array(field)) {
    if (!IsIntegerIn(layer, 1, num_layers)) {
      fields.Fail(field, absl::StrCat("holds ", Brief(layer), "; layer numbers from 1 to ",
                                      num_layers, " are expected"));
    } else if (!layers.insert(layer.get<int64_t>()).second) {
      fields.Fail(field, absl::StrCat("holds layer ", Brief(layer), " twice"));
    }
  }
  return layers;
}

// The first of two names of a field that is there; the second is what other families call it.
const char* EitherName(const JsonFields& fields, const char* name, const char* other_name) {
  return fields.Find(name) == nullptr && fields.Find(other_name) != nullptr ? other_name : name;
}

void RefuseUnlessOff(JsonFields& fields, const char* field) {
  if (const Json* value = fields.Find(field); value != nullptr && *value != false) {
    fields.Refuse(field, Brief(*value), "only a model without it (null or absent) is");
  }
}

void CheckSupported(JsonFields& fields) {
  if (const std::string act = fields.String("hidden_act", "silu"); act != "silu") {
    fields.Refuse("hidden_act", Brief(Json(act)), "\"silu\" is");
  }
  if (!fields.Bool("mla_use_nope", false)) {
    fields.Refuse("mla_use_nope", "false (the default)",
                  "only attention without rotation (true) is");
  }
  // What later models of the family add to the same model_type changes the forward pass.
  for (const char* field :
       {"rope_scaling", "quantization_config", "attention_bias", "mla_use_output_gate",
        "attn_res_block_size", "routed_expert_hidden_size"}) {
    RefuseUnlessOff(fields, field);
  }
}

void ReadMla(JsonFields& fields, MlaConfig& mla) {
  mla.num_heads = fields.Int("num_attention_heads", 1, kMaxHeads);
  mla.q_lora_rank = fields.Int("q_lora_rank", 0, kMaxWidth, 0);
  mla.kv_lora_rank = fields.Int("kv_lora_rank", 1, kMaxWidth);
  mla.qk_nope_head_dim = fields.Int("qk_nope_head_dim", 1, kMaxHeadDim);
  mla.qk_rope_head_dim = fields.Int("qk_rope_head_dim", 1, kMaxHeadDim);
  mla.v_head_dim = fields.Int("v_head_dim", 1, kMaxHeadDim);
  mla.latent_norm_eps = fields.Number("latent_norm_eps", kMinEps, 1, 1e-6);
}

// Groups divide the experts; the groups that are kept hold enough of them.
void ReadExpertGroups(JsonFields& fields, MoeConfig& moe) {
  moe.num_expert_group = fields.Int("num_expert_group", 1, moe.num_experts, 1);
  moe.topk_group = fields.Int("topk_group", 1, moe.num_expert_group, 1);
  if (moe.num_experts % moe.num_expert_group != 0) {
    fields.Fail("num_expert_group",
                absl::StrCat("is ", moe.num_expert_group, ", which does not divide num_experts ",
                             moe.num_experts));
  } else if (moe.num_experts / moe.num_expert_group * moe.topk_group < moe.num_experts_per_token) {
    fields.Fail("topk_group", absl::StrCat("is ", moe.topk_group,
                                           "; the kept groups hold fewer experts than "
                                           "num_experts_per_token ",
                                           moe.num_experts_per_token));
  }
  if (moe.num_expert_group > 1 && !fields.Bool("use_grouped_topk", true)) {
    fields.Refuse("use_grouped_topk",
                  absl::StrCat("false with num_expert_group ", moe.num_expert_group),
                  "true is, or one group");
  }
}

void ReadMoe(JsonFields& fields, MoeConfig& moe) {
  moe.num_experts = fields.Int("num_experts", 0, kMaxExperts, 0);
  if (moe.num_experts == 0) {
    return;
  }
  moe.num_experts_per_token =
      fields.Int(EitherName(fields, "num_experts_per_token", "num_experts_per_tok"), 1,
                 std::min(moe.num_experts, kMaxExpertsPerToken));
  moe.moe_intermediate_size = fields.Int("moe_intermediate_size", 1, kMaxWidth);
  moe.num_shared_experts = fields.Int("num_shared_experts", 0, kMaxSharedExperts, 0);
  moe.routed_scaling_factor = fields.Number("routed_scaling_factor", 0, 1e6, 1.0);
  moe.renormalize = fields.Bool(EitherName(fields, "moe_renormalize", "norm_topk_prob"), true);
  const std::string scoring = fields.String("moe_router_activation_func", "sigmoid");
  if (scoring == "softmax") {
    moe.scoring_function = ScoringFunction::kSoftmax;
  } else if (scoring != "sigmoid") {
    fields.Refuse("moe_router_activation_func", Brief(Json(scoring)),
                  "\"sigmoid\" and \"softmax\" are");
  }
  ReadExpertGroups(fields, moe);
}

// The kind of every layer, from the two lists of linear_attn_config, and the sizes of the kinds
// that occur.
void ReadLayers(JsonFields& fields, ModelConfig& config) {
  const int64_t num_layers = fields.Int("num_hidden_layers", 1, kMaxLayers);
  JsonFields linear(fields.Object("linear_attn_config"),
                    absl::StrCat(fields.source(), ": linear_attn_config"));
  const std::set<int64_t> delta_layers = ReadLayerNumbers(linear, "kda_layers", num_layers);
  const std::set<int64_t> mla_layers = ReadLayerNumbers(linear, "full_attn_layers", num_layers);
  RefuseUnlessOff(linear, "gate_lower_bound");
  RefuseUnlessOff(linear, "use_full_rank_gate");
  if (!delta_layers.empty()) {
    config.delta.num_heads = linear.Int("num_heads", 1, kMaxHeads);
    config.delta.head_dim = linear.Int("head_dim", 1, kMaxHeadDim);
    config.delta.conv_kernel_size = linear.Int("short_conv_kernel_size", 1, kMaxConvKernel);
  }
  const int64_t num_dense = fields.Int("first_k_dense_replace", 0, kMaxLayers, 0);
  const int64_t moe_freq = fields.Int("moe_layer_freq", 1, kMaxLayers, 1);
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const bool is_delta = delta_layers.contains(layer + 1);
    if (is_delta == mla_layers.contains(layer + 1)) {
      linear.Fail("kda_layers",
                  absl::StrCat("and full_attn_layers must hold every layer once; ", "layer ",
                               layer + 1, " is in ", is_delta ? "both" : "neither"));
    }
    config.layers.push_back(
        {is_delta ? AttentionKind::kDelta : AttentionKind::kMla,
         config.moe.num_experts > 0 && layer >= num_dense && layer % moe_freq == 0});
  }
  if (!mla_layers.empty()) {
    ReadMla(fields, config.mla);
  }
  fields.Take(linear.status());
}

// Each size may be possible and the whole absurd: sums over the model must not overflow either.
void CheckParameters(JsonFields& fields, const ModelConfig& config) {
  const uint64_t num_experts = static_cast<uint64_t>(config.num_moe_layers()) *
                               static_cast<uint64_t>(config.moe.num_experts);
  const uint64_t expert_parameters = uint64_t{3} * static_cast<uint64_t>(config.hidden_size) *
                                     static_cast<uint64_t>(config.moe.moe_intermediate_size);
  std::optional<uint64_t> total = CheckedMul(num_experts, expert_parameters);
  for (const TrunkTensor& tensor : TrunkTensors(config)) {
    const std::optional<uint64_t> elements = CheckedProduct(tensor.shape);
    if (!total || !elements || !RangeFits(*total, *elements, kMaxParameters)) {
      fields.Fail("num_hidden_layers", absl::StrCat("and the sizes make a model of more than ",
                                                    kMaxParameters, " parameters"));
      return;
    }
    *total += *elements;
  }
}

}  // namespace

int64_t ModelConfig::num_moe_layers() const {
  return std::count_if(layers.begin(), layers.end(),
                       [](const LayerConfig& layer) { return layer.is_moe; });
}

std::vector<int64_t> ModelConfig::moe_layers() const {
  std::vector<int64_t> result;
  for (int64_t layer = 0; layer < num_layers(); ++layer) {
    if (layers[static_cast<size_t>(layer)].is_moe) {
      result.push_back(layer);
    }
  }
  return result;
}

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const Json object, ParseJsonObject(json, name));
  JsonFields fields(object, std::string(name));
  ModelConfig config;
  config.model_type = fields.String("model_type");
  SHOAL_RETURN_IF_ERROR(fields.status());
  if (config.model_type != "kimi_linear") {
    fields.Refuse("model_type", Brief(Json(config.model_type)), "\"kimi_linear\" is");
    return fields.status();
  }
  CheckSupported(fields);
  config.vocab_size = fields.Int("vocab_size", 1, kMaxVocab);
  config.hidden_size = fields.Int("hidden_size", 1, kMaxWidth);
  config.rms_norm_eps = fields.Number("rms_norm_eps", kMinEps, 1, 1e-6);
  config.tie_word_embeddings = fields.Bool("tie_word_embeddings", false);
  config.max_position_embeddings = fields.Int("model_max_length", 1, kMaxPositions, 1 << 20);
  config.bos_token_id = fields.Int("bos_token_id", 0, config.vocab_size - 1, -1);
  config.eos_token_ids = ReadTokenIds(fields, "eos_token_id", config.vocab_size);
  ReadMoe(fields, config.moe);
  ReadLayers(fields, config);
  if (config.num_moe_layers() < config.num_layers()) {
    config.intermediate_size = fields.Int("intermediate_size", 1, kMaxWidth);
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  CheckParameters(fields, config);
  SHOAL_RETURN_IF_ERROR(fields.status());
  return config;
}

}  // namespace shoal

#include "coordinator/synth/synthetic_model.h"

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// The numbers that tell the families apart.
struct Family {
  const char* name = "";
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t dense_intermediate = 0;
  int64_t heads = 0;  // of both kinds of attention
  int64_t delta_head_dim = 0;
  int64_t nope_head_dim = 0;
  int64_t rope_head_dim = 0;
  int64_t value_head_dim = 0;
  int64_t kv_rank = 0;
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t expert_intermediate = 0;
  double scaling_factor = 0;
  int64_t vocab = 0;
};

constexpr std::array<Family, 3> kFamilies = {{
    {"kimi-k3", 93, 3584, 9216, 32, 128, 128, 64, 128, 512, 896, 16, 3072, 1.0, 163840},
    {"kimi-linear-48b", 27, 2304, 9216, 32, 128, 128, 64, 128, 512, 256, 8, 1024, 2.446, 163840},
    {"tiny", 8, 192, 512, 4, 64, 64, 32, 64, 128, 32, 4, 64, 2.446, 4096},
}};

constexpr int64_t kMinLayers = 2;  // the first has no experts
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMinVocab = 512;
constexpr int64_t kMaxVocab = int64_t{1} << 20;
constexpr int64_t kNumBytes = 256;
constexpr int64_t kNumSpecial = 256;  // at the vocabulary's end

// Places among the special tokens are those of the Kimi models.
struct Special {
  int64_t place = 0;
  const char* name = "";
};
constexpr std::array<Special, 7> kSpecials = {{{0, "[BOS]"},
                                               {1, "[EOS]"},
                                               {2, "<|im_end|>"},
                                               {3, "<|im_user|>"},
                                               {4, "<|im_assistant|>"},
                                               {10, "<|im_system|>"},
                                               {17, "<|im_middle|>"}}};

absl::StatusOr<Family> FindFamily(absl::string_view name) {
  const auto* it = std::find_if(kFamilies.begin(), kFamilies.end(),
                                [name](const Family& family) { return name == family.name; });
  if (it == kFamilies.end()) {
    return absl::InvalidArgumentError(absl::StrCat("there is no family \"", name,
                                                   "\" to make a model like; there are ",
                                                   absl::StrJoin(SyntheticFamilies(), ", ")));
  }
  return *it;
}

absl::Status CheckRange(absl::string_view what, int64_t value, int64_t least, int64_t most) {
  return value >= least && value <= most
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat(value, " ", what, "; ", least, " to ", most, " are possible"));
}

// The family with what was asked for in its place.
absl::StatusOr<Family> Resolve(const SyntheticShape& shape) {
  SHOAL_ASSIGN_OR_RETURN(Family family, FindFamily(shape.like));
  const int64_t all_experts = family.experts;
  family.layers = shape.num_layers.value_or(family.layers);
  family.experts = shape.num_experts.value_or(family.experts);
  family.vocab = shape.vocab_size.value_or(family.vocab);
  SHOAL_RETURN_IF_ERROR(CheckRange("layers", family.layers, kMinLayers, kMaxLayers));
  SHOAL_RETURN_IF_ERROR(
      CheckRange("experts", family.experts, family.experts_per_token, all_experts));
  SHOAL_RETURN_IF_ERROR(CheckRange("tokens in the vocabulary", family.vocab, kMinVocab, kMaxVocab));
  return family;
}

Json AttentionJson(const Family& family) {
  Json delta = Json::array();
  Json latent = Json::array();
  for (int64_t layer = 1; layer <= family.layers; ++layer) {
    (layer % 4 == 0 || layer == family.layers ? latent : delta).push_back(layer);
  }
  return {{"full_attn_layers", latent},
          {"head_dim", family.delta_head_dim},
          {"kda_layers", delta},
          {"num_heads", family.heads},
          {"short_conv_kernel_size", 4}};
}

std::string ConfigJson(const Family& family) {
  const Json json = {{"architectures", {"KimiLinearForCausalLM"}},
                     {"bos_token_id", family.vocab - kNumSpecial},
                     {"dtype", "bfloat16"},
                     {"first_k_dense_replace", 1},
                     {"hidden_act", "silu"},
                     {"hidden_size", family.hidden},
                     {"intermediate_size", family.dense_intermediate},
                     {"kv_lora_rank", family.kv_rank},
                     {"linear_attn_config", AttentionJson(family)},
                     {"mla_use_nope", true},
                     {"model_max_length", 1 << 20},
                     {"model_type", "kimi_linear"},
                     {"moe_intermediate_size", family.expert_intermediate},
                     {"moe_layer_freq", 1},
                     {"moe_renormalize", true},
                     {"moe_router_activation_func", "sigmoid"},
                     {"num_attention_heads", family.heads},
                     {"num_expert_group", 1},
                     {"num_experts", family.experts},
                     {"num_experts_per_token", family.experts_per_token},
                     {"num_hidden_layers", family.layers},
                     {"num_key_value_heads", family.heads},
                     {"num_shared_experts", 1},
                     {"q_lora_rank", nullptr},
                     {"qk_nope_head_dim", family.nope_head_dim},
                     {"qk_rope_head_dim", family.rope_head_dim},
                     {"rms_norm_eps", 1e-5},
                     {"routed_scaling_factor", family.scaling_factor},
                     {"tie_word_embeddings", false},
                     {"topk_group", 1},
                     {"v_head_dim", family.value_head_dim},
                     {"vocab_size", family.vocab}};
  return json.dump(2) + "\n";
}

// The bytes of a token: one, two or three of them, all sequences in order.
std::string TokenBytes(int64_t rank) {
  int64_t length = 1;
  int64_t sequences = kNumBytes;  // of that length
  while (rank >= sequences) {
    rank -= sequences;
    sequences *= kNumBytes;
    ++length;
  }
  std::string bytes(static_cast<size_t>(length), '\0');
  for (auto byte = bytes.rbegin(); byte != bytes.rend(); ++byte) {
    *byte = static_cast<char>(rank % kNumBytes);
    rank /= kNumBytes;
  }
  return bytes;
}

std::string RankFile(int64_t vocab_size) {
  std::string text;
  for (int64_t rank = 0; rank < vocab_size - kNumSpecial; ++rank) {
    absl::StrAppend(&text, absl::Base64Escape(TokenBytes(rank)), " ", rank, "\n");
  }
  return text;
}

std::string TokenizerConfig(int64_t vocab_size) {
  Json names = Json::object();
  for (const Special& special : kSpecials) {
    names[absl::StrCat(vocab_size - kNumSpecial + special.place)] = {{"content", special.name},
                                                                     {"special", true}};
  }
  return Json{{"added_tokens_decoder", names}}.dump(2) + "\n";
}

}  // namespace

std::vector<std::string> SyntheticFamilies() {
  std::vector<std::string> names;
  names.reserve(kFamilies.size());
  for (const Family& family : kFamilies) {
    names.emplace_back(family.name);
  }
  return names;
}

absl::StatusOr<SyntheticModel> MakeSyntheticModel(const SyntheticShape& shape) {
  SHOAL_ASSIGN_OR_RETURN(const Family family, Resolve(shape));
  SyntheticModel model;
  model.files = {{std::string(kConfigFile), ConfigJson(family)},
                 {"tiktoken.model", RankFile(family.vocab)},
                 {"tokenizer_config.json", TokenizerConfig(family.vocab)}};
  SHOAL_ASSIGN_OR_RETURN(model.config, ParseModelConfig(model.files.front().content,
                                                        absl::StrCat("a model like ", shape.like)));
  return model;
}

}  // namespace shoal

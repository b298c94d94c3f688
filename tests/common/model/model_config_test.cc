#include "common/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;

Json ReadJson(const std::string& path) {
  std::ifstream in(absl::StrCat(SHOAL_SOURCE_DIR, "/", path));
  return Json::parse(in, nullptr, /*allow_exceptions=*/false);
}

const Json& Variants() {
  static const Json* const variants = new Json(ReadJson("tests/data/random_variants.json"));
  return *variants;
}

Json Base() { return Variants().at("base").at("config"); }

absl::StatusOr<ModelConfig> Parse(const Json& config) {
  return ParseModelConfig(config.dump(), "m/config.json");
}

// A base config with one value changed; `value` is JSON text, or "absent" to take the field away.
struct BadValue {
  const char* name;
  const char* field;  // "linear.x" is linear_attn_config.x
  const char* value;
  absl::StatusCode code;
  const char* message;
};

Json Changed(const std::string& field, const std::string& value) {
  Json config = Base();
  const bool is_linear = field.starts_with("linear.");
  Json& object = is_linear ? config["linear_attn_config"] : config;
  const std::string key = is_linear ? field.substr(7) : field;
  if (value == "absent") {
    object.erase(key);
  } else {
    object[key] = Json::parse(value);
  }
  return config;
}

class BadValueTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadValueTest, IsRefusedByFieldAndValue) {
  const BadValue& bad = GetParam();
  EXPECT_THAT(Parse(Changed(bad.field, bad.value)),
              StatusIs(bad.code, AllOf(HasSubstr("m/config.json"), HasSubstr(bad.message))));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kMissing = absl::StatusCode::kUnimplemented;
constexpr char kManyNines[] = "9223372036854775807";

INSTANTIATE_TEST_SUITE_P(
    Unsupported, BadValueTest,
    ::testing::Values(
        BadValue{"ModelType", "model_type", "\"llama\"", kMissing, "model_type \"llama\""},
        BadValue{"Activation", "hidden_act", "\"gelu\"", kMissing, "hidden_act \"gelu\""},
        BadValue{"Rotation", "mla_use_nope", "false", kMissing, "mla_use_nope false"},
        BadValue{"RotationByDefault", "mla_use_nope", "absent", kMissing, "mla_use_nope false"},
        BadValue{"RopeScaling", "rope_scaling", R"({"type": "yarn"})", kMissing,
                 "rope_scaling an object"},
        BadValue{"Quantization", "quantization_config", R"({"quant_method": "fp8"})", kMissing,
                 "quantization_config an object"},
        BadValue{"AttentionBias", "attention_bias", "true", kMissing, "attention_bias true"},
        BadValue{"OutputGate", "mla_use_output_gate", "true", kMissing, "mla_use_output_gate true"},
        BadValue{"AttentionResiduals", "attn_res_block_size", "12", kMissing,
                 "attn_res_block_size 12"},
        BadValue{"LatentExperts", "routed_expert_hidden_size", "3584", kMissing,
                 "routed_expert_hidden_size 3584"},
        BadValue{"BoundedGate", "linear.gate_lower_bound", "-5.0", kMissing,
                 "gate_lower_bound -5.0"},
        BadValue{"FullRankGate", "linear.use_full_rank_gate", "true", kMissing,
                 "use_full_rank_gate true"},
        BadValue{"Scoring", "moe_router_activation_func", "\"tanh\"", kMissing,
                 "moe_router_activation_func \"tanh\""}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Missing, BadValueTest,
    ::testing::Values(
        BadValue{"ModelType", "model_type", "absent", kInvalid, "model_type is missing"},
        BadValue{"Vocab", "vocab_size", "absent", kInvalid, "vocab_size is missing"},
        BadValue{"Hidden", "hidden_size", "null", kInvalid, "hidden_size is missing"},
        BadValue{"Intermediate", "intermediate_size", "absent", kInvalid,
                 "intermediate_size is missing"},
        BadValue{"Layers", "num_hidden_layers", "absent", kInvalid, "num_hidden_layers is missing"},
        BadValue{"Heads", "num_attention_heads", "absent", kInvalid,
                 "num_attention_heads is missing"},
        BadValue{"KvRank", "kv_lora_rank", "absent", kInvalid, "kv_lora_rank is missing"},
        BadValue{"Nope", "qk_nope_head_dim", "absent", kInvalid, "qk_nope_head_dim is missing"},
        BadValue{"Rope", "qk_rope_head_dim", "absent", kInvalid, "qk_rope_head_dim is missing"},
        BadValue{"Value", "v_head_dim", "absent", kInvalid, "v_head_dim is missing"},
        BadValue{"TopK", "num_experts_per_token", "absent", kInvalid,
                 "num_experts_per_token is missing"},
        BadValue{"ExpertWidth", "moe_intermediate_size", "absent", kInvalid,
                 "moe_intermediate_size is missing"},
        BadValue{"Linear", "linear_attn_config", "absent", kInvalid,
                 "linear_attn_config is missing"},
        BadValue{"LinearIsList", "linear_attn_config", "[]", kInvalid, "linear_attn_config"},
        BadValue{"DeltaHeads", "linear.num_heads", "absent", kInvalid, "num_heads is missing"},
        BadValue{"DeltaHeadDim", "linear.head_dim", "absent", kInvalid, "head_dim is missing"},
        BadValue{"Conv", "linear.short_conv_kernel_size", "absent", kInvalid,
                 "short_conv_kernel_size is missing"},
        BadValue{"DeltaLayers", "linear.kda_layers", "absent", kInvalid, "kda_layers is missing"},
        BadValue{"MlaLayers", "linear.full_attn_layers", "null", kInvalid,
                 "full_attn_layers is missing"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    WrongType, BadValueTest,
    ::testing::Values(
        BadValue{"SizeIsText", "hidden_size", "\"64\"", kInvalid, "hidden_size is \"64\""},
        BadValue{"SizeIsFraction", "hidden_size", "64.0", kInvalid, "hidden_size is 64.0"},
        BadValue{"SizeIsBool", "vocab_size", "true", kInvalid, "vocab_size is true"},
        BadValue{"EpsIsText", "rms_norm_eps", "\"1e-5\"", kInvalid, "rms_norm_eps is \"1e-5\""},
        BadValue{"FlagIsNumber", "moe_renormalize", "1", kInvalid, "moe_renormalize is 1"},
        BadValue{"TypeIsNumber", "model_type", "5", kInvalid, "model_type is 5"},
        BadValue{"ActivationIsList", "hidden_act", "[]", kInvalid, "hidden_act is an array"},
        BadValue{"LayersIsNumber", "linear.kda_layers", "3", kInvalid, "kda_layers"},
        BadValue{"LayerIsText", "linear.kda_layers", "[1, 2, \"3\"]", kInvalid,
                 "kda_layers holds \"3\""},
        BadValue{"EosIsText", "eos_token_id", "\"2\"", kInvalid, "eos_token_id is or holds \"2\""},
        BadValue{"EosListHoldsList", "eos_token_id", "[[2]]", kInvalid,
                 "eos_token_id is or holds an array"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    OutOfRange, BadValueTest,
    ::testing::Values(
        BadValue{"ZeroVocab", "vocab_size", "0", kInvalid, "vocab_size is 0"},
        BadValue{"VocabAbove2To24", "vocab_size", "16777217", kInvalid, "from 1 to 16777216"},
        BadValue{"ZeroHidden", "hidden_size", "0", kInvalid, "hidden_size is 0"},
        BadValue{"NegativeHidden", "hidden_size", "-64", kInvalid, "hidden_size is -64"},
        BadValue{"HiddenAbove2To20", "hidden_size", "1048577", kInvalid, "from 1 to 1048576"},
        BadValue{"HiddenAbove63Bits", "hidden_size", "9223372036854775808", kInvalid,
                 "hidden_size is 9223372036854775808"},
        BadValue{"HiddenAbove64Bits", "hidden_size", "18446744073709551680", kInvalid,
                 "hidden_size is 1.8"},
        BadValue{"ZeroIntermediate", "intermediate_size", "0", kInvalid, "intermediate_size is 0"},
        BadValue{"ZeroLayers", "num_hidden_layers", "0", kInvalid, "num_hidden_layers is 0"},
        BadValue{"LayersAbove4096", "num_hidden_layers", "4097", kInvalid, "from 1 to 4096"},
        BadValue{"ZeroHeads", "num_attention_heads", "0", kInvalid, "num_attention_heads is 0"},
        BadValue{"AbsurdHeads", "num_attention_heads", kManyNines, kInvalid,
                 "num_attention_heads is 9223372036854775807"},
        BadValue{"NegativeQueryRank", "q_lora_rank", "-1", kInvalid, "q_lora_rank is -1"},
        BadValue{"ZeroKvRank", "kv_lora_rank", "0", kInvalid, "kv_lora_rank is 0"},
        BadValue{"ZeroNope", "qk_nope_head_dim", "0", kInvalid, "qk_nope_head_dim is 0"},
        BadValue{"ZeroRope", "qk_rope_head_dim", "0", kInvalid, "qk_rope_head_dim is 0"},
        BadValue{"ZeroValue", "v_head_dim", "0", kInvalid, "v_head_dim is 0"},
        BadValue{"ZeroDeltaHeads", "linear.num_heads", "0", kInvalid, "num_heads is 0"},
        BadValue{"ZeroDeltaHeadDim", "linear.head_dim", "0", kInvalid, "head_dim is 0"},
        BadValue{"ZeroConv", "linear.short_conv_kernel_size", "0", kInvalid,
                 "short_conv_kernel_size is 0"},
        BadValue{"NegativeExperts", "num_experts", "-1", kInvalid, "num_experts is -1"},
        BadValue{"ExpertsAbove65536", "num_experts", "65537", kInvalid, "from 0 to 65536"},
        BadValue{"ZeroTopK", "num_experts_per_token", "0", kInvalid, "num_experts_per_token is 0"},
        BadValue{"TopKAboveExperts", "num_experts_per_token", "17", kInvalid, "from 1 to 16"},
        BadValue{"ZeroExpertWidth", "moe_intermediate_size", "0", kInvalid,
                 "moe_intermediate_size is 0"},
        BadValue{"NegativeShared", "num_shared_experts", "-1", kInvalid,
                 "num_shared_experts is -1"},
        BadValue{"NegativeScaling", "routed_scaling_factor", "-1.0", kInvalid,
                 "routed_scaling_factor is -1.0"},
        BadValue{"ZeroGroups", "num_expert_group", "0", kInvalid, "num_expert_group is 0"},
        BadValue{"GroupsDoNotDivide", "num_expert_group", "3", kInvalid,
                 "num_expert_group is 3, which does not divide num_experts 16"},
        BadValue{"TopGroupsAboveGroups", "topk_group", "2", kInvalid, "topk_group is 2"},
        BadValue{"ZeroEps", "rms_norm_eps", "0", kInvalid, "rms_norm_eps is 0"},
        BadValue{"NegativeEps", "rms_norm_eps", "-1e-05", kInvalid, "rms_norm_eps is -1e-05"},
        BadValue{"HugeEps", "rms_norm_eps", "1e300", kInvalid, "rms_norm_eps is 1e+300"},
        BadValue{"NegativeLatentEps", "latent_norm_eps", "-1.0", kInvalid,
                 "latent_norm_eps is -1.0"},
        BadValue{"NegativeFirstDense", "first_k_dense_replace", "-1", kInvalid,
                 "first_k_dense_replace is -1"},
        BadValue{"ZeroMoeFrequency", "moe_layer_freq", "0", kInvalid, "moe_layer_freq is 0"},
        BadValue{"ZeroPositions", "model_max_length", "0", kInvalid, "model_max_length is 0"},
        BadValue{"BosOutsideVocab", "bos_token_id", "512", kInvalid, "bos_token_id is 512"},
        BadValue{"EosOutsideVocab", "eos_token_id", "512", kInvalid, "from 0 to 511"},
        BadValue{"EosAbove63Bits", "eos_token_id", "18446744073709551615", kInvalid,
                 "holds 18446744073709551615"},
        BadValue{"NegativeEosInList", "eos_token_id", "[1, -2]", kInvalid, "holds -2"}),
    [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    LayerLists, BadValueTest,
    ::testing::Values(
        BadValue{"InNeither", "linear.kda_layers", "[1, 3]", kInvalid, "layer 2 is in neither"},
        BadValue{"InBoth", "linear.kda_layers", "[1, 2, 3, 4]", kInvalid, "layer 4 is in both"},
        BadValue{"TwiceInOne", "linear.kda_layers", "[1, 2, 3, 2]", kInvalid, "layer 2 twice"},
        BadValue{"LayerZero", "linear.kda_layers", "[0, 1, 2, 3]", kInvalid, "kda_layers holds 0"},
        BadValue{"AboveLast", "linear.full_attn_layers", "[4, 5]", kInvalid,
                 "full_attn_layers holds 5"},
        BadValue{"MoreLayersThanListed", "num_hidden_layers", "5", kInvalid,
                 "layer 5 is in neither"}),
    [](const auto& info) { return info.param.name; });

TEST(ModelConfigTest, ReadsEveryFieldOfTheBundledModel) {
  const Json json = ReadJson("examples/tiny-kimi-linear/config.json");
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Parse(json));
  EXPECT_EQ(config.model_type, "kimi_linear");
  EXPECT_EQ(config.vocab_size, 4096);
  EXPECT_EQ(config.hidden_size, 192);
  EXPECT_EQ(config.intermediate_size, 512);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.max_position_embeddings, 1048576);
  EXPECT_EQ(config.bos_token_id, 3840);
  EXPECT_THAT(config.eos_token_ids, ElementsAre(3842));
  EXPECT_EQ(config.mla.num_heads, 4);
  EXPECT_EQ(config.mla.q_lora_rank, 0);
  EXPECT_EQ(config.mla.kv_lora_rank, 128);
  EXPECT_EQ(config.mla.qk_nope_head_dim, 64);
  EXPECT_EQ(config.mla.qk_rope_head_dim, 32);
  EXPECT_EQ(config.mla.v_head_dim, 64);
  EXPECT_EQ(config.mla.latent_norm_eps, 1e-5);
  EXPECT_EQ(config.delta.num_heads, 4);
  EXPECT_EQ(config.delta.head_dim, 64);
  EXPECT_EQ(config.delta.conv_kernel_size, 4);
  EXPECT_EQ(config.moe.num_experts, 32);
  EXPECT_EQ(config.moe.num_experts_per_token, 4);
  EXPECT_EQ(config.moe.moe_intermediate_size, 64);
  EXPECT_EQ(config.moe.num_shared_experts, 1);
  EXPECT_EQ(config.moe.routed_scaling_factor, 2.446);
  EXPECT_TRUE(config.moe.renormalize);
  EXPECT_EQ(config.moe.scoring_function, ScoringFunction::kSigmoid);
  EXPECT_EQ(config.moe.num_expert_group, 1);
  EXPECT_EQ(config.moe.topk_group, 1);
  std::vector<AttentionKind> kinds;
  for (const LayerConfig& layer : config.layers) {
    kinds.push_back(layer.attention);
  }
  const AttentionKind delta = AttentionKind::kDelta;
  const AttentionKind mla = AttentionKind::kMla;
  EXPECT_THAT(kinds, ElementsAre(delta, delta, delta, mla, delta, delta, delta, mla));
  EXPECT_THAT(config.moe_layers(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(config.num_moe_layers(), 7);
}

// The defaults are those of class Config in tests/reference/kimi_linear_reference.py.
TEST(ModelConfigTest, AbsentAndNullFieldsTakeTheirDefaults) {
  for (const bool as_null : {false, true}) {
    Json json = Base();
    for (const char* field :
         {"rms_norm_eps", "tie_word_embeddings", "q_lora_rank", "num_shared_experts",
          "routed_scaling_factor", "moe_renormalize", "moe_router_activation_func",
          "num_expert_group", "topk_group", "first_k_dense_replace", "moe_layer_freq",
          "model_max_length", "bos_token_id", "eos_token_id", "hidden_act", "rope_scaling"}) {
      if (as_null) {
        json[field] = nullptr;
      } else {
        json.erase(field);
      }
    }
    json["tie_word_embeddings"] = nullptr;
    SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Parse(json));
    EXPECT_EQ(config.rms_norm_eps, 1e-6);
    EXPECT_EQ(config.mla.latent_norm_eps, 1e-6);
    EXPECT_FALSE(config.tie_word_embeddings);
    EXPECT_EQ(config.mla.q_lora_rank, 0);
    EXPECT_EQ(config.moe.num_shared_experts, 0);
    EXPECT_EQ(config.moe.routed_scaling_factor, 1.0);
    EXPECT_TRUE(config.moe.renormalize);
    EXPECT_EQ(config.moe.scoring_function, ScoringFunction::kSigmoid);
    EXPECT_EQ(config.moe.num_expert_group, 1);
    EXPECT_EQ(config.moe.topk_group, 1);
    EXPECT_EQ(config.num_moe_layers(), 4);
    EXPECT_EQ(config.bos_token_id, -1);
    EXPECT_THAT(config.eos_token_ids, IsEmpty());
  }
}

TEST(ModelConfigTest, ReadsTheOtherNamesOfTopKAndRenormalize) {
  Json json = Base();
  json.erase("num_experts_per_token");
  json.erase("moe_renormalize");
  json["num_experts_per_tok"] = 3;
  json["norm_topk_prob"] = false;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, Parse(json));
  EXPECT_EQ(config.moe.num_experts_per_token, 3);
  EXPECT_FALSE(config.moe.renormalize);
}

TEST(ModelConfigTest, EosMayBeOneIdOrAList) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig one, Parse(Changed("eos_token_id", "7")));
  EXPECT_THAT(one.eos_token_ids, ElementsAre(7));
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig list, Parse(Changed("eos_token_id", "[7, 0, 511]")));
  EXPECT_THAT(list.eos_token_ids, ElementsAre(7, 0, 511));
}

TEST(ModelConfigTest, SizesOfAKindOfLayerThatDoesNotOccurAreNotRead) {
  Json no_mla = Variants().at("all_kda").at("config");
  no_mla["num_attention_heads"] = 0;
  no_mla["kv_lora_rank"] = -1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig all_delta, Parse(no_mla));
  EXPECT_EQ(all_delta.mla.num_heads, 0);
  EXPECT_THAT(all_delta.layers, Each(Field(&LayerConfig::attention, AttentionKind::kDelta)));

  Json no_delta = Variants().at("all_mla").at("config");
  no_delta["linear_attn_config"]["num_heads"] = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig all_mla, Parse(no_delta));
  EXPECT_EQ(all_mla.delta.num_heads, 0);

  Json no_moe = Base();
  no_moe["num_experts"] = nullptr;
  no_moe["moe_intermediate_size"] = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig all_dense, Parse(no_moe));
  EXPECT_EQ(all_dense.num_moe_layers(), 0);

  Json no_dense = Variants().at("dense_none").at("config");
  no_dense["intermediate_size"] = 0;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig all_moe, Parse(no_dense));
  EXPECT_EQ(all_moe.intermediate_size, 0);
}

TEST(ModelConfigTest, KeptGroupsMustHoldEnoughExperts) {
  Json json = Variants().at("groups").at("config");  // 4 groups of 4 experts, top 4
  json["topk_group"] = 1;
  SHOAL_EXPECT_OK(Parse(json));
  json["num_experts_per_token"] = 5;
  EXPECT_THAT(Parse(json), StatusIs(kInvalid, AllOf(HasSubstr("topk_group is 1"),
                                                    HasSubstr("num_experts_per_token 5"))));
}

TEST(ModelConfigTest, RefusesGroupsThatTheConfigSwitchesOff) {
  Json json = Variants().at("groups").at("config");
  json["use_grouped_topk"] = false;
  EXPECT_THAT(Parse(json), StatusIs(kMissing, HasSubstr("use_grouped_topk false with "
                                                        "num_expert_group 4")));
  json["num_expert_group"] = 1;
  json["topk_group"] = 1;
  SHOAL_EXPECT_OK(Parse(json));
}

TEST(ModelConfigTest, RefusesAModelWhoseParametersDoNotAddUp) {
  // Each size is within its range. Experts alone: 3 * 65536 * 3 * 2^20 * 2^20 > 2^64.
  Json json = Base();
  json["hidden_size"] = 1 << 20;
  json["moe_intermediate_size"] = 1 << 20;
  json["num_experts"] = 1 << 16;
  EXPECT_THAT(Parse(json), StatusIs(kInvalid, HasSubstr("more than 1125899906842624 parameters")));
  // Trunk alone: one shared MLP of 2^10 * 2^20 * 2^20 * 3 > 2^50.
  json["num_experts"] = 16;
  json["moe_intermediate_size"] = 1 << 20;
  json["num_shared_experts"] = 1024;
  EXPECT_THAT(Parse(json), StatusIs(kInvalid, HasSubstr("more than 1125899906842624 parameters")));
}

TEST(ModelConfigTest, RefusesTextThatIsNoConfig) {
  for (const char* text :
       {"", "[]", "{", "{\"model_type\": \"kimi_linear\", \"rms_norm_eps\": NaN}",
        "{\"rms_norm_eps\": 1e999}"}) {
    EXPECT_THAT(ParseModelConfig(text, "m/config.json"),
                StatusIs(kInvalid, AllOf(HasSubstr("m/config.json"), HasSubstr("JSON object"))))
        << text;
  }
}

TEST(ModelConfigTest, RefusesAFieldThatAppearsTwice) {
  std::string text = Base().dump();
  text.insert(1, "\"hidden_size\": 128, ");
  EXPECT_THAT(ParseModelConfig(text, "m/config.json"),
              StatusIs(kInvalid, HasSubstr("\"hidden_size\" appears twice")));
}

TEST(ModelConfigTest, ADepthBombIsRefusedAndOverflowsNoStack) {
  const size_t depth = 2'000'000;
  std::string text = Base().dump();
  text.insert(1, absl::StrCat("\"z\": ", std::string(depth, '['), std::string(depth, ']'), ","));
  EXPECT_THAT(ParseModelConfig(text, "m/config.json"), StatusIs(kInvalid, HasSubstr("levels")));
}

TEST(ModelConfigTest, LongValuesAreShortenedInMessages) {
  Json json = Base();
  for (const char* field : {"model_type", "hidden_act", "moe_router_activation_func"}) {
    json = Base();
    json[field] = std::string(100'000, 'x');
    const auto result = Parse(json);
    EXPECT_THAT(result, StatusIs(kMissing, HasSubstr(field)));
    EXPECT_LT(result.status().message().size(), 300U);
  }
}

}  // namespace
}  // namespace shoal

#include "common/model/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using Json = nlohmann::json;
using Shape = std::vector<uint64_t>;
using NamedShape = std::pair<std::string, Shape>;

constexpr char kVariants[] = SHOAL_SOURCE_DIR "/tests/data/random_variants.json";
constexpr char kBundledModel[] = SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear";

Json Variants() {
  std::ifstream in(kVariants);
  return Json::parse(in, nullptr, /*allow_exceptions=*/false);
}

absl::StatusOr<ModelConfig> ParseVariant(const std::string& name) {
  return ParseModelConfig(Variants().at(name).at("config").dump(), name);
}

const TrunkTensor& Named(const std::vector<TrunkTensor>& tensors, const std::string& name) {
  for (const TrunkTensor& tensor : tensors) {
    if (tensor.name == name) {
      return tensor;
    }
  }
  ADD_FAILURE() << name << " is not in the list";
  return tensors.front();
}

// What random_checkpoint.py writes for each of its variants, in its order; of each layer's experts
// the file lists the first and the last.
class VariantTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const Json variant = Variants().at(GetParam());
    for (const Json& tensor : variant.at("tensors")) {
      const NamedShape named{tensor.at(0).get<std::string>(), tensor.at(1).get<Shape>()};
      (named.first.find(".experts.") == std::string::npos ? trunk_ : experts_).push_back(named);
    }
    num_expert_tensors_ = variant.at("num_expert_tensors").get<int64_t>();
    const auto config = ParseVariant(GetParam());
    SHOAL_ASSERT_OK(config);
    config_ = *config;
  }

  std::vector<NamedShape> trunk_;
  std::vector<NamedShape> experts_;
  int64_t num_expert_tensors_ = 0;
  ModelConfig config_;
};

TEST_P(VariantTest, TrunkTensorsComeFromExactlyTheTensorsOfTheCheckpoint) {
  std::vector<NamedShape> sources;
  for (const TrunkTensor& tensor : TrunkTensors(config_)) {
    const NamedShape source{tensor.source_name, tensor.source_shape};
    if (sources.empty() || sources.back() != source) {  // kv_b_proj gives two in a row
      sources.push_back(source);
    }
  }
  EXPECT_EQ(sources, trunk_);
}

TEST_P(VariantTest, ExpertTensorsHaveTheNamesOfTheCheckpoint) {
  const Shape wide = {static_cast<uint64_t>(config_.moe.moe_intermediate_size),
                      static_cast<uint64_t>(config_.hidden_size)};
  const Shape tall = {wide[1], wide[0]};
  std::vector<NamedShape> names;
  for (const int64_t layer : config_.moe_layers()) {
    for (const int64_t expert : {int64_t{0}, config_.moe.num_experts - 1}) {
      const ExpertTensorNames expert_names = ExpertTensors(config_, layer, expert);
      names.push_back({expert_names.gate, wide});
      names.push_back({expert_names.down, tall});
      names.push_back({expert_names.up, wide});
    }
  }
  EXPECT_EQ(names, experts_);
  EXPECT_EQ(config_.num_moe_layers() * config_.moe.num_experts * 3, num_expert_tensors_);
}

TEST_P(VariantTest, StoredTensorsHaveTheElementsOfTheirSources) {
  std::map<std::string, uint64_t> source_elements;
  std::map<std::string, uint64_t> stored_elements;
  std::set<std::string> names;
  const auto elements = [](const Shape& shape) {
    uint64_t product = 1;
    for (const uint64_t size : shape) {
      product *= size;
    }
    return product;
  };
  for (const TrunkTensor& tensor : TrunkTensors(config_)) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name << " is twice in the list";
    source_elements[tensor.source_name] = elements(tensor.source_shape);
    stored_elements[tensor.source_name] += elements(tensor.shape);
  }
  EXPECT_EQ(stored_elements, source_elements);
}

std::vector<std::string> VariantNames() {
  std::vector<std::string> names;
  const Json variants = Variants();  // items() only refers to it
  for (const auto& [name, variant] : variants.items()) {
    names.push_back(name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, VariantTest, ::testing::ValuesIn(VariantNames()),
                         [](const auto& info) { return info.param; });

TEST(TensorNamesTest, AllTwentyVariantsAreTested) { EXPECT_EQ(VariantNames().size(), 20U); }

TEST(TensorNamesTest, TheBundledModelHoldsEveryTensorAndNoOther) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(kBundledModel));
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                             ParseModelConfig(checkpoint->config_json(), "config.json"));
  std::set<std::string> named;
  for (const TrunkTensor& tensor : TrunkTensors(config)) {
    SHOAL_EXPECT_OK(checkpoint->Find(tensor.source_name, tensor.source_shape));
    named.insert(tensor.source_name);
  }
  const Shape wide = {64, 192};
  const Shape tall = {192, 64};
  for (const int64_t layer : config.moe_layers()) {
    for (int64_t expert = 0; expert < config.moe.num_experts; ++expert) {
      const ExpertTensorNames names = ExpertTensors(config, layer, expert);
      SHOAL_EXPECT_OK(checkpoint->Find(names.gate, wide));
      SHOAL_EXPECT_OK(checkpoint->Find(names.up, wide));
      SHOAL_EXPECT_OK(checkpoint->Find(names.down, tall));
      named.insert({names.gate, names.up, names.down});
    }
  }
  EXPECT_EQ(named.size(), checkpoint->tensors().size());
}

// Shapes of the published 48B model: model-architectures, section 3.2.
TEST(TensorNamesTest, RolesAndStoredShapesFollowTheKindOfTensor) {
  const Json variants = Variants();
  Json json = variants.at("deep").at("config");
  json.update({{"hidden_size", 2304},
               {"vocab_size", 163840},
               {"intermediate_size", 9216},
               {"num_attention_heads", 32},
               {"kv_lora_rank", 512},
               {"qk_nope_head_dim", 128},
               {"qk_rope_head_dim", 64},
               {"v_head_dim", 128},
               {"num_experts", 256},
               {"moe_intermediate_size", 1024}});
  json["linear_attn_config"].update({{"num_heads", 32}, {"head_dim", 128}});
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(json.dump(), "48B"));
  const std::vector<TrunkTensor> tensors = TrunkTensors(config);
  const std::string delta = "model.layers.0.self_attn.";
  const std::string mla = "model.layers.3.self_attn.";
  const std::string moe = "model.layers.26.block_sparse_moe.";
  const TrunkRole projection = TrunkRole::kProjection;
  const TrunkRole vector = TrunkRole::kVector;
  const auto expect = [&](const std::string& name, TrunkRole role, const Shape& source_shape,
                          const Shape& shape) {
    const TrunkTensor& tensor = Named(tensors, name);
    EXPECT_EQ(tensor.role, role) << name;
    EXPECT_EQ(tensor.source_shape, source_shape) << name;
    EXPECT_EQ(tensor.shape, shape) << name;
  };
  const auto expect_same = [&](const std::string& name, TrunkRole role, const Shape& shape) {
    expect(name, role, shape, shape);
    EXPECT_EQ(Named(tensors, name).source_name, name);
  };
  expect_same("model.embed_tokens.weight", TrunkRole::kEmbedding, {163840, 2304});
  expect_same("lm_head.weight", TrunkRole::kHead, {163840, 2304});
  expect_same("model.norm.weight", vector, {2304});
  expect_same("model.layers.26.input_layernorm.weight", vector, {2304});
  expect_same("model.layers.26.post_attention_layernorm.weight", vector, {2304});
  for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) {
    expect_same(delta + name, projection, {4096, 2304});
  }
  for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
    expect(delta + name, vector, {4096, 1, 4}, {4096, 4});
  }
  expect(delta + "A_log", vector, {1, 1, 32, 1}, {32});
  expect_same(delta + "dt_bias", vector, {4096});
  expect_same(delta + "f_a_proj.weight", projection, {128, 2304});
  expect_same(delta + "f_b_proj.weight", projection, {4096, 128});
  expect_same(delta + "g_a_proj.weight", projection, {128, 2304});
  expect_same(delta + "g_b_proj.weight", projection, {4096, 128});
  expect_same(delta + "b_proj.weight", projection, {32, 2304});
  expect_same(delta + "o_norm.weight", vector, {128});
  expect_same(delta + "o_proj.weight", projection, {2304, 4096});
  expect_same(mla + "q_proj.weight", projection, {6144, 2304});
  expect_same(mla + "kv_a_proj_with_mqa.weight", projection, {576, 2304});
  expect_same(mla + "kv_a_layernorm.weight", vector, {512});
  expect(mla + "kv_b_proj.k_up", TrunkRole::kKeyUpProj, {8192, 512}, {32 * 512, 128});
  expect(mla + "kv_b_proj.v_up", TrunkRole::kValueUpProj, {8192, 512}, {32 * 128, 512});
  EXPECT_EQ(Named(tensors, mla + "kv_b_proj.k_up").source_name, mla + "kv_b_proj.weight");
  EXPECT_EQ(Named(tensors, mla + "kv_b_proj.v_up").source_name, mla + "kv_b_proj.weight");
  expect_same(mla + "o_proj.weight", projection, {2304, 4096});
  expect_same("model.layers.0.mlp.gate_proj.weight", projection, {9216, 2304});
  expect_same("model.layers.0.mlp.down_proj.weight", projection, {2304, 9216});
  expect_same(moe + "gate.weight", TrunkRole::kRouter, {256, 2304});
  expect_same(moe + "gate.e_score_correction_bias", vector, {256});
  expect_same(moe + "shared_experts.up_proj.weight", projection, {1024, 2304});
  expect_same(moe + "shared_experts.down_proj.weight", projection, {2304, 1024});
}

TEST(TensorNamesTest, QueriesOfLowRankHaveTwoProjectionsAndANorm) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseVariant("q_lora"));
  const std::vector<TrunkTensor> tensors = TrunkTensors(config);
  const std::string mla = "model.layers.3.self_attn.";
  EXPECT_EQ(Named(tensors, mla + "q_a_proj.weight").role, TrunkRole::kProjection);
  EXPECT_EQ(Named(tensors, mla + "q_a_layernorm.weight").role, TrunkRole::kVector);
  EXPECT_EQ(Named(tensors, mla + "q_b_proj.weight").role, TrunkRole::kProjection);
}

TEST(TensorNamesTest, VectorsOfOneElementKeepOneDimension) {
  Json json = Variants().at("base").at("config");
  json["linear_attn_config"]["num_heads"] = 1;
  json["linear_attn_config"]["short_conv_kernel_size"] = 1;
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ParseModelConfig(json.dump(), "one head"));
  const std::vector<TrunkTensor> tensors = TrunkTensors(config);
  EXPECT_THAT(Named(tensors, "model.layers.0.self_attn.A_log").shape, ElementsAre(1));
  EXPECT_THAT(Named(tensors, "model.layers.0.self_attn.q_conv1d.weight").shape, ElementsAre(32));
}

TEST(TensorNamesTest, LayerTensorNamesArePublishedNames) {
  EXPECT_EQ(LayerTensorName(3, "self_attn.o_proj.weight"),
            "model.layers.3.self_attn.o_proj.weight");
}

}  // namespace
}  // namespace shoal

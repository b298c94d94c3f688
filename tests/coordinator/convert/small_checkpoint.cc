#include "tests/coordinator/convert/small_checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/model/model_config.h"
#include "common/model/tensor_names.h"
#include "tests/testing/status_matchers.h"

namespace shoal::testing {
namespace {

namespace fs = std::filesystem;

std::string ConfigJson(const SmallCheckpoint& options) {
  return absl::StrCat(
      R"({"architectures":["KimiLinearForCausalLM"],"model_type":"kimi_linear",
"vocab_size":)",
      options.vocab_size,
      R"(,"hidden_size":36,"intermediate_size":56,"num_hidden_layers":3,"num_attention_heads":2,
"num_key_value_heads":2,"head_dim":16,"hidden_act":"silu","rms_norm_eps":1e-05,"rope_theta":10000.0,
"rope_scaling":null,"tie_word_embeddings":)",
      options.tie_word_embeddings ? "true" : "false",
      R"(,"bos_token_id":256,"eos_token_id":257,"pad_token_id":258,"model_max_length":4096,
"q_lora_rank":null,"kv_lora_rank":20,"qk_nope_head_dim":12,"qk_rope_head_dim":4,"v_head_dim":10,"mla_use_nope":true,
"linear_attn_config":{"kda_layers":[1,3],"full_attn_layers":[2],"num_heads":2,"head_dim":16,"short_conv_kernel_size":4},
"first_k_dense_replace":)",
      options.dense_only ? 3 : 1,
      R"(,"moe_layer_freq":1,"num_experts":14,"num_experts_per_token":3,"num_shared_experts":1,
"moe_intermediate_size":20,"moe_renormalize":true,"moe_router_activation_func":"sigmoid",
"routed_scaling_factor":2.446,"use_grouped_topk":true,"num_expert_group":1,"topk_group":1,
"num_nextn_predict_layers":0})");
}

// The 256 single bytes and a few special names.
void WriteTokenizer(const std::string& directory) {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    absl::StrAppend(&ranks, absl::Base64Escape(std::string(1, static_cast<char>(byte))), " ", byte,
                    "\n");
  }
  SHOAL_ASSERT_OK(WriteFileAtomically(directory + "/tiktoken.model", ranks));
  SHOAL_ASSERT_OK(
      WriteFileAtomically(directory + "/tokenizer_config.json", R"({"added_tokens_decoder":{
"256":{"content":"[BOS]","special":true},"257":{"content":"<|im_end|>","special":true},
"258":{"content":"<|im_user|>","special":true},"259":{"content":"<|im_assistant|>","special":true},
"260":{"content":"<|im_middle|>","special":true},"261":{"content":"<|im_system|>","special":true}}})"));
}

uint64_t NumElements(const std::vector<uint64_t>& shape) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    elements *= size;
  }
  return elements;
}

}  // namespace

void SmallCheckpoint::WriteTo(const std::string& directory) const {
  fs::create_directories(directory);
  const std::string config_json = ConfigJson(*this);
  SHOAL_ASSERT_OK(WriteFileAtomically(directory + "/config.json", config_json));
  WriteTokenizer(directory);
  SHOAL_ASSERT_OK_AND_ASSIGN(const ModelConfig config,
                             ParseModelConfig(config_json, "config.json"));
  std::vector<TensorSpec> specs;
  std::set<std::string> seen;
  for (const TrunkTensor& tensor : TrunkTensors(config)) {
    if (seen.insert(tensor.source_name).second) {
      specs.push_back({tensor.source_name, DType::kF32, tensor.source_shape});
    }
  }
  for (const int64_t layer : config.moe_layers()) {
    for (int64_t expert = 0; expert < config.moe.num_experts; ++expert) {
      const ExpertTensorNames names = ExpertTensors(config, layer, expert);
      specs.push_back({names.gate, DType::kF32, {20, 36}});
      specs.push_back({names.up, DType::kF32, {20, 36}});
      specs.push_back({names.down, DType::kF32, {36, 20}});
    }
  }
  std::mt19937 random(seed);
  std::vector<TensorSpec> kept;
  std::vector<std::vector<float>> values;
  for (TensorSpec& spec : specs) {
    std::vector<float> data(NumElements(spec.shape));
    for (float& value : data) {
      // The sum of four uniforms is near enough to a Gaussian.
      value = 0;
      for (int i = 0; i < 4; ++i) {
        value += static_cast<float>(random() >> 8) / 16777216.0F - 0.5F;
      }
      value *= 0.1F;
    }
    if (mutate) {
      mutate(spec, data);
    }
    if (!spec.name.empty()) {
      kept.push_back(spec);
      values.push_back(std::move(data));
    }
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto writer,
                             SafetensorsWriter::Create(directory + "/model.safetensors", kept));
  for (const std::vector<float>& data : values) {
    SHOAL_ASSERT_OK(writer->AppendFloat(data));
  }
  SHOAL_ASSERT_OK(writer->Finish());
}

std::map<std::string, std::string> ReadTree(const std::string& directory) {
  std::map<std::string, std::string> tree;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) {
      const auto content = ReadTextFile(entry.path().string(), uint64_t{1} << 30);
      tree[fs::relative(entry.path(), directory).string()] = content.ok() ? *content : "unreadable";
    }
  }
  return tree;
}

std::vector<std::string> DifferentFiles(const std::map<std::string, std::string>& a,
                                        const std::map<std::string, std::string>& b) {
  std::vector<std::string> names;
  for (const auto& [name, content] : a) {
    const auto it = b.find(name);
    if (it == b.end() || it->second != content) {
      names.push_back(name);
    }
  }
  for (const auto& [name, content] : b) {
    if (!a.contains(name)) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace shoal::testing

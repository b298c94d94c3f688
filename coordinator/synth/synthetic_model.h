// Models without a checkpoint: the shapes of a known one, to be filled with random weights.
#ifndef SHOAL_COORDINATOR_SYNTH_SYNTHETIC_MODEL_H_
#define SHOAL_COORDINATOR_SYNTH_SYNTHETIC_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/model_config.h"
#include "coordinator/convert/source_model.h"

namespace shoal {

struct SyntheticShape {
  std::string like = {};  // one of SyntheticFamilies()
  // Where absent: the family's.
  std::optional<int64_t> num_layers = {};   // all of them, at least 2
  std::optional<int64_t> num_experts = {};  // in each MoE layer; from those of a token
  std::optional<int64_t> vocab_size = {};   // 512 to 1048576
};

struct SyntheticModel {
  ModelConfig config;
  std::vector<CopiedFile> files;  // config.json and the tokenizer's
};

// "kimi-k3", "kimi-linear-48b", "tiny".
std::vector<std::string> SyntheticFamilies();

// The first layer is dense; every fourth layer and the last have latent attention, as in the
// Kimi-Linear family. kimi-k3 has the blocks of Kimi-Linear-48B around experts of K3's shape. The
// tokenizer has a token for every byte, then sequences of two and three bytes up to the vocabulary's
// size, and the special tokens of the chat layout. There is no token that ends an answer, so that an
// answer has the length that was asked for. INVALID_ARGUMENT names what is outside its bounds.
absl::StatusOr<SyntheticModel> MakeSyntheticModel(const SyntheticShape& shape);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SYNTH_SYNTHETIC_MODEL_H_

// A checkpoint as the converter sees it: everything it will read, found and checked before any
// work.
#ifndef SHOAL_COORDINATOR_CONVERT_SOURCE_MODEL_H_
#define SHOAL_COORDINATOR_CONVERT_SOURCE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/unit_layout.h"
#include "common/io/sha256.h"
#include "common/model/model_config.h"
#include "common/model/tensor_names.h"

namespace shoal {

// One tensor of the checkpoint, with its place.
struct SourceTensor {
  std::string name;
  TensorInfo info;
};

struct TrunkSource {
  TrunkTensor tensor;
  TensorInfo info;
  // Whether this is the first trunk tensor made from that source tensor (kv_b_proj makes two).
  bool counts = true;
};

// Files that go into the container as they are, and back into a checkpoint; the last is optional.
inline constexpr std::array<const char*, 4> kCopiedFiles = {
    "config.json", "tiktoken.model", "tokenizer_config.json", "generation_config.json"};
inline constexpr uint64_t kMaxCopiedFileBytes = uint64_t{256} << 20;

struct CopiedFile {
  std::string name;
  std::string content;
};

struct SourceModel {
  ModelConfig config;
  std::vector<TrunkSource> trunk;  // in the order of TrunkTensors
  std::vector<int64_t> moe_layers;
  std::vector<uint64_t> layer_bytes;  // of the experts of each MoE layer
  uint64_t trunk_bytes = 0;           // each source tensor once
  uint64_t source_tensors_bytes = 0;  // size of the source_tensors.txt that will be written
  std::vector<CopiedFile> copies;     // config.json and the tokenizer's files

  uint64_t total_bytes() const;
};

// Parses config.json and the tokenizer, and finds every tensor of the trunk and of every expert
// with its shape and a dtype that can be read. Values are not read. Errors are those of
// ParseModelConfig, Tokenizer::Load and Checkpoint::Find.
absl::StatusOr<SourceModel> CheckSource(const Checkpoint& checkpoint);

// The product of a shape that was checked: by ParseModelConfig, or against a container's files.
uint64_t NumElements(std::span<const uint64_t> shape);

// The three matrices of one expert.
enum ExpertMatrix { kGate = 0, kUp = 1, kDown = 2 };
inline constexpr int kExpertMatrices = 3;
absl::StatusOr<std::array<SourceTensor, kExpertMatrices>> FindExpert(const Checkpoint& checkpoint,
                                                                     const ModelConfig& config,
                                                                     ExpertKey key);

// Reads elements [first, first + out.size()) of a tensor and widens them to float. `raw` is scratch
// that grows as needed; `digest`, where given, is fed the source bytes. INVALID_ARGUMENT names the
// tensor and the first element that is NaN or infinite.
absl::Status ReadElements(const Checkpoint& checkpoint, const std::string& name,
                          const TensorInfo& info, uint64_t first, std::span<float> out,
                          std::vector<std::byte>& raw, Sha256* digest);

// A line of source_tensors.txt: "<sha256> <dtype> [<shape>] <name>\n".
std::string SourceTensorLine(absl::string_view sha256, DType dtype, std::span<const uint64_t> shape,
                             absl::string_view name);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_SOURCE_MODEL_H_

#include "coordinator/convert/source_model.h"

#include <cmath>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/manifest.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/tokenizer/tokenizer.h"

namespace shoal {
namespace {

constexpr size_t kHexDigestChars = 64;

absl::Status FindTrunk(const Checkpoint& checkpoint, SourceModel& source) {
  absl::flat_hash_set<std::string> seen;
  for (TrunkTensor& tensor : TrunkTensors(source.config)) {
    SHOAL_ASSIGN_OR_RETURN(TensorInfo info,
                           checkpoint.Find(tensor.source_name, tensor.source_shape));
    const bool counts = seen.insert(tensor.source_name).second;
    if (counts) {
      source.trunk_bytes += info.size_bytes;
      source.source_tensors_bytes += SourceTensorLine(std::string(kHexDigestChars, '0'), info.dtype,
                                                      info.shape, tensor.source_name)
                                         .size();
    }
    source.trunk.push_back({std::move(tensor), std::move(info), counts});
  }
  return absl::OkStatus();
}

absl::Status FindExperts(const Checkpoint& checkpoint, SourceModel& source) {
  source.moe_layers = source.config.moe_layers();
  for (const int64_t layer : source.moe_layers) {
    uint64_t bytes = 0;
    for (int64_t expert = 0; expert < source.config.moe.num_experts; ++expert) {
      SHOAL_ASSIGN_OR_RETURN(const auto tensors,
                             FindExpert(checkpoint, source.config, {layer, expert}));
      for (const SourceTensor& tensor : tensors) {
        bytes += tensor.info.size_bytes;
        source.source_tensors_bytes +=
            SourceTensorLine(std::string(kHexDigestChars, '0'), tensor.info.dtype,
                             tensor.info.shape, tensor.name)
                .size();
      }
    }
    source.layer_bytes.push_back(bytes);
  }
  return absl::OkStatus();
}

absl::Status ReadCopies(const Checkpoint& checkpoint, SourceModel& source) {
  for (const char* name : kCopiedFiles) {
    if (absl::string_view(name) == kConfigFile) {
      source.copies.push_back({name, checkpoint.config_json()});
      continue;
    }
    absl::StatusOr<std::string> content =
        ReadTextFile(absl::StrCat(checkpoint.directory(), "/", name), kMaxCopiedFileBytes);
    const bool optional = absl::string_view(name) == "generation_config.json";
    if (optional && absl::IsNotFound(content.status())) {
      continue;
    }
    SHOAL_RETURN_IF_ERROR(content.status());
    source.copies.push_back({name, *std::move(content)});
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t NumElements(std::span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    elements *= size;
  }
  return elements;
}

uint64_t SourceModel::total_bytes() const {
  uint64_t total = trunk_bytes;
  for (const uint64_t bytes : layer_bytes) {
    total += bytes;
  }
  return total;
}

absl::StatusOr<SourceModel> CheckSource(const Checkpoint& checkpoint) {
  SourceModel source;
  SHOAL_ASSIGN_OR_RETURN(source.config,
                         ParseModelConfig(checkpoint.config_json(),
                                          absl::StrCat(checkpoint.directory(), "/config.json")));
  SHOAL_RETURN_IF_ERROR(FindTrunk(checkpoint, source));
  SHOAL_RETURN_IF_ERROR(FindExperts(checkpoint, source));
  SHOAL_RETURN_IF_ERROR(Tokenizer::Load(checkpoint.directory(), source.config.vocab_size).status());
  SHOAL_RETURN_IF_ERROR(ReadCopies(checkpoint, source));
  return source;
}

absl::StatusOr<std::array<SourceTensor, kExpertMatrices>> FindExpert(const Checkpoint& checkpoint,
                                                                     const ModelConfig& config,
                                                                     ExpertKey key) {
  ExpertTensorNames names = ExpertTensors(config, key.layer, key.expert);
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto intermediate = static_cast<uint64_t>(config.moe.moe_intermediate_size);
  const std::array<uint64_t, 2> into = {intermediate, hidden};
  const std::array<uint64_t, 2> out_of = {hidden, intermediate};
  std::array<SourceTensor, kExpertMatrices> tensors;
  SHOAL_ASSIGN_OR_RETURN(tensors[kGate].info, checkpoint.Find(names.gate, into));
  SHOAL_ASSIGN_OR_RETURN(tensors[kUp].info, checkpoint.Find(names.up, into));
  SHOAL_ASSIGN_OR_RETURN(tensors[kDown].info, checkpoint.Find(names.down, out_of));
  tensors[kGate].name = std::move(names.gate);
  tensors[kUp].name = std::move(names.up);
  tensors[kDown].name = std::move(names.down);
  return tensors;
}

absl::Status ReadElements(const Checkpoint& checkpoint, const std::string& name,
                          const TensorInfo& info, uint64_t first, std::span<float> out,
                          std::vector<std::byte>& raw, Sha256* digest) {
  TensorInfo part = info;
  part.shape = {out.size()};
  part.offset_bytes += first * DTypeBytes(info.dtype);
  part.size_bytes = out.size() * DTypeBytes(info.dtype);
  raw.resize(part.size_bytes);
  SHOAL_RETURN_IF_ERROR(Annotate(checkpoint.ReadRaw(part, raw), absl::StrCat("tensor ", name)));
  if (digest != nullptr) {
    digest->Update(raw);
  }
  WidenToFloat(info.dtype, raw, out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!std::isfinite(out[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          checkpoint.directory(), "/", info.file, ": tensor ", name, " holds ",
          std::isnan(out[i]) ? "NaN" : "an infinity", " at element ", first + i,
          "; the checkpoint is damaged, fetch this file again and run the same command"));
    }
  }
  return absl::OkStatus();
}

std::string SourceTensorLine(absl::string_view sha256, DType dtype, std::span<const uint64_t> shape,
                             absl::string_view name) {
  return absl::StrCat(sha256, " ", DTypeName(dtype), " [", absl::StrJoin(shape, ","), "] ", name,
                      "\n");
}

}  // namespace shoal

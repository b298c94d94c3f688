// Hugging Face checkpoint -> container.
#ifndef SHOAL_COORDINATOR_CONVERT_CONVERTER_H_
#define SHOAL_COORDINATOR_CONVERT_CONVERTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/manifest.h"

namespace shoal {

struct ConvertOptions {
  ExpertCodec experts = ExpertCodec::kRvq3;
  std::optional<TrunkType> trunk;  // absent: RecommendedTrunk
  uint64_t seed = 0;
  int num_jobs =
      0;  // threads; 0: the CPUs this process may use. Never changes a byte of the output
};

struct ConvertProgress {
  std::string step;  // "layer 3 experts", "trunk", ...
  uint64_t source_bytes_done = 0;
  uint64_t source_bytes_total = 0;
  uint64_t source_bytes_resumed = 0;  // of done: from an earlier run
};

struct ConvertLayerReport {
  int64_t layer = 0;
  double relative_error = 0;  // ||W - Wq|| / ||W|| over the layer's experts
};

struct ConvertReport {
  std::string identity;
  uint64_t container_bytes = 0;
  bool already_converted = false;  // the directory held this very conversion
  std::vector<ConvertLayerReport> layers;
  double trunk_relative_error = 0;
  TrunkType trunk = TrunkType::kQ8;
};

// q8 where the whole trunk at 8 bits is small beside this machine's memory, else q4.
TrunkType RecommendedTrunk(const ModelConfig& config);

// Writes `directory` from `checkpoint`. All work happens in `directory`.partial, which a later call
// with the same settings and checkpoint goes on from (finished layers are kept; a ledger says
// which), and which is renamed at the end: `directory` never holds half a container. Killed
// anywhere and run again, the bytes are the same.
//   ALREADY_EXISTS       `directory` holds something else, or a conversion with other settings
//   (named) FAILED_PRECONDITION  `directory`.partial belongs to other settings or another
//   checkpoint (named; remove it to start again) RESOURCE_EXHAUSTED   not enough disk: checked in
//   bytes before the start, and when a write fails CANCELLED            `stop`; run again to go on
//   and the errors of Checkpoint::Open, ParseModelConfig and Tokenizer::Load: all tensors are
//   checked before any work
absl::StatusOr<ConvertReport> Convert(
    const std::string& checkpoint, const std::string& directory, const ConvertOptions& options,
    const std::function<void(const ConvertProgress&)>& on_progress, std::stop_token stop);

// Writes the container's own weights as an f32 Hugging Face checkpoint (config.json,
// model.safetensors, tokenizer files), so that any other program can be compared on the same
// weights. `directory` must not exist; it appears when complete.
absl::Status Dequantize(const std::string& container, const std::string& directory,
                        const std::function<void(const ConvertProgress&)>& on_progress,
                        std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_CONVERTER_H_

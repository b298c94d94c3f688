// Hugging Face checkpoint -> container, and back to a checkpoint of the container's own weights.
#ifndef SHOAL_COORDINATOR_CONVERT_CONVERTER_H_
#define SHOAL_COORDINATOR_CONVERT_CONVERTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"

namespace shoal {

struct ConvertOptions {
  ExpertCodec experts = ExpertCodec::kTcq3;
  // Absent: what an unfinished or finished conversion in the same place has, else RecommendedTrunk.
  std::optional<TrunkType> trunk;
  uint64_t seed = 0;
  // Threads; 0: the CPUs this process may use. Never changes a byte of the output.
  int num_jobs = 0;
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
  uint64_t container_bytes = 0;    // of all files
  bool already_converted = false;  // the directory held this very conversion; nothing was written
  std::vector<ConvertLayerReport> layers;
  // ||W - Wq|| / ||W|| over the whole trunk; absent where already_converted (the container does not
  // keep it).
  std::optional<double> trunk_relative_error;
  TrunkType trunk = TrunkType::kQ8;
  // Files of an earlier run that no longer were what its ledger says (damaged, or changed by
  // someone) and were made again.
  std::vector<std::string> remade_files;
};

// q8 where the whole trunk at 8 bits is at most a quarter of TotalMemoryBytes(), else q4.
TrunkType RecommendedTrunk(const ModelConfig& config);

// Writes `directory` from `checkpoint`. All work happens in `directory`.partial, which a later call
// with the same settings and checkpoint goes on from (finished layers are kept and hashed again; a
// ledger says which), and from which the container is renamed at the end: `directory` never holds
// half a container. Killed anywhere and run again, the bytes are the same, for any number of jobs.
//
// `on_progress` (may be empty) is called from the calling thread: before and after each step, and
// at least once for every few experts. `stop` is looked at in the same places.
//
// Memory: the experts in flight, one a thread and at most 16, take at most a quarter of what
// UsableMemoryBytes() says when their layer begins, but one expert is always in memory: as float,
// as source bytes and as record.
//
// Everything but the values of weights is checked before the first byte is written. The values are
// checked as they are read: a NaN or an infinity is an INVALID_ARGUMENT that names file, tensor and
// element, `directory` does not appear, and what was finished is kept, so that the same command
// goes on once the checkpoint's file has been fetched again.
//   ALREADY_EXISTS       `directory` holds something else, or a conversion with other settings
//                        (named)
//   FAILED_PRECONDITION  `directory`.partial belongs to other settings or another checkpoint
//                        (named; remove it to start again), or another process is at work in it
//   RESOURCE_EXHAUSTED   not enough disk: checked in bytes before the start, and when a write fails
//   CANCELLED            `stop`; run again to go on
// and the errors of Checkpoint::Open, ParseModelConfig and Tokenizer::Load.
absl::StatusOr<ConvertReport> Convert(
    const std::string& checkpoint, const std::string& directory, const ConvertOptions& options,
    const std::function<void(const ConvertProgress&)>& on_progress, std::stop_token stop);

// Writes the container's own weights as an f32 Hugging Face checkpoint (config.json,
// model.safetensors, tokenizer files), so that any other program can be compared on the same
// weights. Every byte read is checked against its checksum. `directory` must not exist
// (ALREADY_EXISTS); it appears when complete. Memory: the largest tensor as float, twice. Progress
// counts bytes of the checkpoint written.
absl::Status Dequantize(const std::string& container, const std::string& directory,
                        const std::function<void(const ConvertProgress&)>& on_progress,
                        std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_CONVERTER_H_

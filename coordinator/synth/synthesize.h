// Containers of random weights, to measure machines and pools without a model.
#ifndef SHOAL_COORDINATOR_SYNTH_SYNTHESIZE_H_
#define SHOAL_COORDINATOR_SYNTH_SYNTHESIZE_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "common/io/file.h"
#include "coordinator/synth/synthetic_model.h"

namespace shoal {

struct SynthOptions {
  SyntheticShape shape;
  ExpertCodec experts = ExpertCodec::kTcq3;  // or kRvq3
  uint64_t seed = 0;                         // to 2^63 - 1
  // Threads; 0: the CPUs this process may use. Never changes a byte of the output.
  int num_jobs = 0;
  // Bytes that the file system of a directory has free.
  std::function<absl::StatusOr<uint64_t>(const std::string&)> free_disk_bytes = FreeDiskBytes;
};

struct SynthProgress {
  std::string step;  // "trunk", "layer 3 experts", ...
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;  // of the trunk and the experts
};

struct SynthReport {
  std::string identity;
  uint64_t container_bytes = 0;  // of all files
  bool already_there = false;    // the directory held this very container; nothing was written
};

// Writes `directory`: a container like any other, by the converter's own writers (q8 trunk), whose
// weights are random. The bytes depend on shape, codec and seed alone. All work happens in
// `directory`.partial, from which the container is renamed at the end; nothing is kept there when
// the work stops, and what a killed run left there is removed by the next, which begins again.
//
// `on_progress` (may be empty) is called from the calling thread, before each step and at least
// once for every few experts. `stop` is looked at in the same places. Memory: some 64 MiB of
// records, at least one.
//   INVALID_ARGUMENT     the shape, the codec, the seed, or a directory without a name
//   ALREADY_EXISTS       `directory` holds something else
//   FAILED_PRECONDITION  `directory`.partial is not a synthesis, or another process is at work in it
//   RESOURCE_EXHAUSTED   not enough disk: checked before the start, and when a write fails
//   CANCELLED            `stop`
absl::StatusOr<SynthReport> Synthesize(const std::string& directory, const SynthOptions& options,
                                       const std::function<void(const SynthProgress&)>& on_progress,
                                       std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SYNTH_SYNTHESIZE_H_

// An opened container: its manifest, checked, and the door to its files.
#ifndef SHOAL_COMMON_CONTAINER_CONTAINER_H_
#define SHOAL_COMMON_CONTAINER_CONTAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "kernels/rvq.h"

namespace shoal {

// Thread-safe after Open (immutable).
class Container {
 public:
  // Reads SHA256SUMS, manifest.json, config.json and the tokenizer files' digests; checks that
  // every file exists with the size the manifest says, and the digests of all small files
  // (everything but trunk and banks). Loads nothing large.
  //   NOT_FOUND  the directory or a file is missing (a directory without manifest.json: says to run
  //              `shoal convert`)
  //   DATA_LOSS  a size or digest differs; names the file
  //   and ParseManifest's errors
  static absl::StatusOr<std::unique_ptr<Container>> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const ModelConfig& config() const { return manifest_.config; }
  const std::string& config_json() const { return config_json_; }
  std::string PathOf(absl::string_view file) const;

  // The codebooks of all MoE layers in order; empty for f32. Checked against their digest.
  absl::StatusOr<std::vector<LayerCodebooks>> ReadCodebooks() const;

  // Reads one trunk tensor's bytes into `out` (entry.size_bytes) and checks its CRC. The file's
  // pages are dropped from the page cache. DATA_LOSS names the tensor.
  absl::Status ReadTrunkTensor(const TrunkEntry& entry, std::span<std::byte> out) const;

 private:
  Container() = default;
  absl::Status LoadFiles(const std::string& manifest_text);

  std::string directory_;
  std::string config_json_;
  Manifest manifest_;
};

// What Verify reports as it goes.
struct VerifyProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string file;
};

// Checks every byte: SHA-256 of every file, CRC of every trunk tensor and unit, unit digests
// against the trees, trees against the manifest, SHA256SUMS against the manifest, files that do not
// belong. Returns one line for each problem found (empty: the container is whole). `progress` is
// called at least once a file and every 64 MiB.
absl::StatusOr<std::vector<std::string>> VerifyContainer(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_CONTAINER_H_

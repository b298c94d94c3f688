// An opened container: its manifest, checked, and the door to its files.
#ifndef SHOAL_COMMON_CONTAINER_CONTAINER_H_
#define SHOAL_COMMON_CONTAINER_CONTAINER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/directory_files.h"
#include "common/container/manifest.h"
#include "kernels/rvq.h"

namespace shoal {

// Thread-safe after Open (immutable).
class Container {
 public:
  // Reads SHA256SUMS, manifest.json and config.json; checks that every file exists with the size
  // the manifest says, and the digests of all small files (everything but trunk and banks). Loads
  // nothing large.
  //   NOT_FOUND           the directory or a file is missing (a directory without manifest.json:
  //                       says to run `shoal convert`)
  //   FAILED_PRECONDITION the directory is a partition
  //   DATA_LOSS           a size or digest differs; names the file
  //   RESOURCE_EXHAUSTED  manifest.json or SHA256SUMS has more than 32 MiB, config.json 16 MiB
  //   and OpenForRead's and ParseManifest's errors
  static absl::StatusOr<std::unique_ptr<Container>> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }
  const ModelConfig& config() const { return manifest_.config; }
  const std::string& config_json() const { return config_json_; }
  // SHA-256 (hex) of manifest.json: where the identity is the same for every part of a conversion,
  // this covers the digests of the payload too.
  const std::string& manifest_sha256() const { return manifest_sha256_; }
  std::string PathOf(absl::string_view file) const;

  // The codebooks of all MoE layers in order; empty where the codec has none. DATA_LOSS where they differ from their
  // digest; and the errors of opening and reading.
  absl::StatusOr<std::vector<LayerCodebooks>> ReadCodebooks() const;

  // Reads one trunk tensor's bytes into `out` (entry.size_bytes) and checks its CRC. The file's
  // pages are dropped from the page cache. DATA_LOSS names the tensor; and the errors of opening
  // and reading.
  absl::Status ReadTrunkTensor(const TrunkEntry& entry, std::span<std::byte> out) const;

  // The same check with nothing kept. Reads 8 MiB at a time; `on_piece` is called after each with
  // its bytes, and an error of it ends the check.
  absl::Status CheckTrunkTensor(const TrunkEntry& entry, OnPiece on_piece) const;

 private:
  Container() = default;
  absl::Status LoadFiles(const std::string& manifest_text);

  std::string directory_;
  std::string config_json_;
  std::string manifest_sha256_;
  Manifest manifest_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_CONTAINER_H_

// The files of a container's or a partition's directory, read against what is recorded of them.
// Beside the errors named, all return those of opening and reading (common/io/file.h).
#ifndef SHOAL_COMMON_CONTAINER_DIRECTORY_FILES_H_
#define SHOAL_COMMON_CONTAINER_DIRECTORY_FILES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "common/io/sha256.h"
#include "kernels/rvq.h"

namespace shoal {

// The manifest of Kimi K3 has about 1 MB: a few hundred bytes for each of some thousand tensors.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{32} << 20;
inline constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

// Called with the bytes of each piece that was read; an error of it ends the read.
using OnPiece = absl::FunctionRef<absl::Status(uint64_t bytes)>;

// A range of a file.
struct FileRange {
  const std::string& path;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

// Reads a range piece by piece, 8 MiB at a time, and drops it from the page cache: `place` says
// where the piece that begins at `done` goes, `take` gets it.
absl::Status ReadPieces(const FileRange& range,
                        absl::FunctionRef<std::span<std::byte>(uint64_t done, uint64_t size)> place,
                        absl::FunctionRef<absl::Status(std::span<const std::byte>)> take);
// The same into one buffer, for what is looked at and not kept.
absl::Status ScanPieces(const FileRange& range,
                        absl::FunctionRef<absl::Status(std::span<const std::byte>)> take);

// DATA_LOSS where `digest` is not the recorded one (hex; empty: none is recorded); names `path`.
absl::Status CompareDigest(const Sha256Digest& digest, absl::string_view expected_sha256,
                           const std::string& path);
// DATA_LOSS where the file at `path` has not the size that `said_by` (a file's name) says.
absl::Status CheckFileSize(const std::string& path, uint64_t expected_bytes,
                           absl::string_view said_by);
// Reads the file at `path` and compares its SHA-256 with the entry's. DATA_LOSS where it differs or
// the file is shorter.
absl::Status CheckFileDigest(const std::string& path, const FileEntry& file, OnPiece on_piece);

// The codebooks of all MoE layers in order, from the file at `path`; empty where the codec has
// none. DATA_LOSS where they differ from the manifest's digest.
absl::StatusOr<std::vector<LayerCodebooks>> ReadCodebooksFile(const std::string& path,
                                                              const Manifest& manifest);

// The unit digests of one bank, 32 bytes each by expert and unit, from the file at `path`.
// DATA_LOSS where their number or the root of the tree over them is not the manifest's.
absl::StatusOr<std::string> ReadTreeFile(const std::string& path, const Manifest& manifest,
                                         const BankEntry& bank);

// Size of the digests of one bank's units, which every bank has.
uint64_t LeavesBytes(const Manifest& manifest);
// The same check of digests that are in memory; `name` begins the error.
absl::Status CheckLeaves(absl::string_view leaves, const Manifest& manifest, const BankEntry& bank,
                         absl::string_view name);

// SHA256SUMS as text, in the format of sha256sum: digests (hex) by path. And the digest that such a
// text gives for `path`; empty where it has none.
std::string FormatDigests(const std::map<std::string, std::string>& sha256_by_path);
std::string DigestIn(absl::string_view sums, absl::string_view path);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_DIRECTORY_FILES_H_

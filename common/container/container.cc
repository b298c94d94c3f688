#include "common/container/container.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/partition.h"
#include "common/io/crc32c.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

absl::Status CompareCrc(const TrunkEntry& entry, uint32_t crc, const std::string& path) {
  if (crc != entry.crc32c) {
    return absl::DataLossError(absl::StrCat(
        path, ": tensor ", entry.name, " has checksum ", absl::Hex(crc, absl::kZeroPad8), " where ",
        kManifestFile, " says ", absl::Hex(entry.crc32c, absl::kZeroPad8),
        "; the copy is damaged, copy or convert it again"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Container::PathOf(absl::string_view file) const {
  return absl::StrCat(directory_, "/", file);
}

absl::StatusOr<std::unique_ptr<Container>> Container::Open(const std::string& directory) {
  auto container = std::unique_ptr<Container>(new Container());
  container->directory_ = directory;
  const absl::StatusOr<std::string> text =
      ReadTextFile(container->PathOf(kManifestFile), kMaxManifestBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(directory, " is not a container: it has no ", kManifestFile,
                     "; make one with `shoal convert CHECKPOINT ", directory, "`"));
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  if (HoldsPartition(directory)) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory, " is the partition of a node, which has no trunk; give the ",
                     "container that it was made of"));
  }
  const absl::Status status = container->LoadFiles(*text);
  if (absl::IsNotFound(status) && LacksPartitionFile(directory)) {
    return absl::NotFoundError(absl::StrCat(directory, " holds slices and no ", kPartitionFile,
                                            ": it is a partition of which not all ",
                                            "was copied. Copy that file too, or have the partition "
                                            "made again: `shoal shard`, or remove ",
                                            "the directory and `shoal fill`"));
  }
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("the container is incomplete: ", status.message(),
                                            "; copy the file again, or convert again"));
  }
  SHOAL_RETURN_IF_ERROR(status);
  return container;
}

absl::Status Container::LoadFiles(const std::string& manifest_text) {
  SHOAL_ASSIGN_OR_RETURN(const std::string sums,
                         ReadTextFile(PathOf(kDigestsFile), kMaxManifestBytes));
  const std::string manifest_path = PathOf(kManifestFile);
  manifest_sha256_ = ToHex(Sha256::Of(manifest_text));
  SHOAL_RETURN_IF_ERROR(
      CompareDigest(Sha256::Of(manifest_text), DigestIn(sums, kManifestFile), manifest_path));
  const std::string config_path = PathOf(kConfigFile);
  SHOAL_ASSIGN_OR_RETURN(config_json_, ReadTextFile(config_path, kMaxConfigBytes));
  SHOAL_RETURN_IF_ERROR(
      CompareDigest(Sha256::Of(config_json_), DigestIn(sums, kConfigFile), config_path));
  SHOAL_ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_text, config_json_, manifest_path));
  for (const FileEntry& file : manifest_.files) {
    const std::string path = PathOf(file.path);
    SHOAL_RETURN_IF_ERROR(CheckFileSize(path, file.size_bytes, kManifestFile));
    if (!IsPayloadFile(file.path)) {
      SHOAL_RETURN_IF_ERROR(CheckFileDigest(path, file, [](uint64_t) { return absl::OkStatus(); }));
    }
  }
  return absl::OkStatus();
}

absl::Status Container::CheckTrunkTensor(const TrunkEntry& entry, OnPiece on_piece) const {
  const std::string path = PathOf(kTrunkFile);
  uint32_t crc = Crc32c({});
  SHOAL_RETURN_IF_ERROR(ScanPieces({path, entry.offset_bytes, entry.size_bytes},
                                   [&](std::span<const std::byte> piece) {
                                     crc = ExtendCrc32c(crc, piece);
                                     return on_piece(piece.size());
                                   }));
  return CompareCrc(entry, crc, path);
}

absl::StatusOr<std::vector<LayerCodebooks>> Container::ReadCodebooks() const {
  return ReadCodebooksFile(PathOf(kCodebooksFile), manifest_);
}

absl::Status Container::ReadTrunkTensor(const TrunkEntry& entry, std::span<std::byte> out) const {
  const std::string path = PathOf(kTrunkFile);
  uint32_t crc = Crc32c({});
  SHOAL_RETURN_IF_ERROR(ReadPieces(
      {path, entry.offset_bytes, out.size()},
      [&](uint64_t done, uint64_t size) { return out.subspan(done, size); },
      [&](std::span<const std::byte> piece) {
        crc = ExtendCrc32c(crc, piece);
        return absl::OkStatus();
      }));
  return CompareCrc(entry, crc, path);
}

}  // namespace shoal

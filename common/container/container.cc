#include "common/container/container.h"

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/crc32c.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// The manifest of Kimi K3 has about 1 MB: a few hundred bytes for each of some thousand tensors.
constexpr uint64_t kMaxManifestBytes = uint64_t{32} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
// What is read, and then dropped from the page cache, at a time.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;

// The digest SHA256SUMS gives for `path`; empty where it has none.
std::string DigestIn(absl::string_view sums, absl::string_view path) {
  for (absl::string_view line : absl::StrSplit(sums, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits("  ", 1));
    if (parts.size() == 2 && parts[1] == path) {
      return std::string(parts[0]);
    }
  }
  return "";
}

absl::Status CompareDigest(const Sha256Digest& digest, absl::string_view expected_sha256,
                           const std::string& path) {
  const std::string actual = ToHex(digest);
  if (actual != expected_sha256) {
    return absl::DataLossError(absl::StrCat(
        path, ": its SHA-256 is ", actual.substr(0, 16), "... where ",
        expected_sha256.empty() ? "none" : absl::StrCat(expected_sha256.substr(0, 16), "..."),
        " is recorded; the copy is damaged, copy or convert it again"));
  }
  return absl::OkStatus();
}

absl::Status CheckSize(const std::string& path, uint64_t expected) {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t actual, FileBytes(fd, path));
  if (actual != expected) {
    return absl::DataLossError(absl::StrCat(path, " has ", actual, " bytes where ", kManifestFile,
                                            " says ", expected,
                                            "; the copy is incomplete or damaged"));
  }
  return absl::OkStatus();
}

// A range of a file.
struct FileRange {
  const std::string& path;
  uint64_t offset_bytes = 0;
  uint64_t size_bytes = 0;
};

// Reads a range piece by piece: `place` says where the piece that begins at `done` goes, `take`
// gets it.
absl::Status ReadPieces(const FileRange& range,
                        absl::FunctionRef<std::span<std::byte>(uint64_t done, uint64_t size)> place,
                        absl::FunctionRef<absl::Status(std::span<const std::byte>)> take) {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(range.path));
  for (uint64_t done = 0; done < range.size_bytes; done += kPieceBytes) {
    const auto piece = place(done, std::min(kPieceBytes, range.size_bytes - done));
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, range.path, range.offset_bytes + done, piece));
    DropPageCache(fd, range.offset_bytes + done, piece.size());
    SHOAL_RETURN_IF_ERROR(take(piece));
  }
  return absl::OkStatus();
}

// The same into one buffer, for what is looked at and not kept.
absl::Status ScanPieces(const FileRange& range,
                        absl::FunctionRef<absl::Status(std::span<const std::byte>)> take) {
  std::vector<std::byte> buffer(std::min(kPieceBytes, range.size_bytes));
  return ReadPieces(
      range, [&](uint64_t, uint64_t size) { return std::span(buffer).first(size); }, take);
}

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
  const absl::Status status = container->LoadFiles(*text);
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
  SHOAL_RETURN_IF_ERROR(
      CompareDigest(Sha256::Of(manifest_text), DigestIn(sums, kManifestFile), manifest_path));
  const std::string config_path = PathOf(kConfigFile);
  SHOAL_ASSIGN_OR_RETURN(config_json_, ReadTextFile(config_path, kMaxConfigBytes));
  SHOAL_RETURN_IF_ERROR(
      CompareDigest(Sha256::Of(config_json_), DigestIn(sums, kConfigFile), config_path));
  SHOAL_ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_text, config_json_, manifest_path));
  for (const FileEntry& file : manifest_.files) {
    SHOAL_RETURN_IF_ERROR(CheckSize(PathOf(file.path), file.size_bytes));
    if (!IsPayloadFile(file.path)) {
      SHOAL_RETURN_IF_ERROR(CheckDigest(file, [](uint64_t) { return absl::OkStatus(); }));
    }
  }
  return absl::OkStatus();
}

absl::Status Container::CheckDigest(const FileEntry& file, OnPiece on_piece) const {
  const std::string path = PathOf(file.path);
  Sha256 hash;
  SHOAL_RETURN_IF_ERROR(
      ScanPieces({path, 0, file.size_bytes}, [&](std::span<const std::byte> piece) {
        hash.Update(piece);
        return on_piece(piece.size());
      }));
  return CompareDigest(hash.Finish(), file.sha256, path);
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
  if (manifest_.settings.experts != ExpertCodec::kRvq3 || manifest_.banks.empty()) {
    return std::vector<LayerCodebooks>();
  }
  const std::string path = PathOf(kCodebooksFile);
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
  std::vector<LayerCodebooks> books(manifest_.banks.size());
  const auto bytes = std::as_writable_bytes(std::span(books));
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, 0, bytes));
  if (ToHex(Sha256::Of(bytes)) != manifest_.codebooks_sha256) {
    return absl::DataLossError(absl::StrCat(path, " differs from its digest in ", kManifestFile));
  }
  return books;
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

#include "common/container/container.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/crc32c.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// Far above what a model of 10^5 experts needs, and low enough that a hostile file cannot exhaust
// memory.
constexpr uint64_t kMaxManifestBytes = uint64_t{256} << 20;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;

bool IsLarge(absl::string_view path) {
  return path == kTrunkFile || absl::StartsWith(path, "experts/");
}

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

absl::Status CheckText(absl::string_view text, absl::string_view expected_sha256,
                       const std::string& path) {
  const std::string actual = ToHex(Sha256::Of(text));
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
  SHOAL_RETURN_IF_ERROR(CheckText(manifest_text, DigestIn(sums, kManifestFile), manifest_path));
  const std::string config_path = PathOf(kConfigFile);
  SHOAL_ASSIGN_OR_RETURN(config_json_, ReadTextFile(config_path, kMaxConfigBytes));
  SHOAL_RETURN_IF_ERROR(CheckText(config_json_, DigestIn(sums, kConfigFile), config_path));
  SHOAL_ASSIGN_OR_RETURN(manifest_, ParseManifest(manifest_text, config_json_, manifest_path));
  for (const FileEntry& file : manifest_.files) {
    const std::string path = PathOf(file.path);
    SHOAL_RETURN_IF_ERROR(CheckSize(path, file.size_bytes));
    if (!IsLarge(file.path)) {
      SHOAL_ASSIGN_OR_RETURN(const std::string content, ReadTextFile(path, file.size_bytes));
      SHOAL_RETURN_IF_ERROR(CheckText(content, file.sha256, path));
    }
  }
  return absl::OkStatus();
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
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
  // Read and dropped in pieces, so that the page cache holds little of a large trunk at any time.
  constexpr size_t kPieceBytes = size_t{8} << 20;
  for (size_t done = 0; done < out.size(); done += kPieceBytes) {
    const auto piece = out.subspan(done, std::min(kPieceBytes, out.size() - done));
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, entry.offset_bytes + done, piece));
    DropPageCache(fd, entry.offset_bytes + done, piece.size());
  }
  if (const uint32_t crc = Crc32c(out); crc != entry.crc32c) {
    return absl::DataLossError(absl::StrCat(
        path, ": tensor ", entry.name, " has checksum ", absl::Hex(crc, absl::kZeroPad8), " where ",
        kManifestFile, " says ", absl::Hex(entry.crc32c, absl::kZeroPad8),
        "; the copy is damaged, copy or convert it again"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

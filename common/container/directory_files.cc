#include "common/container/directory_files.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// What is read, and then dropped from the page cache, at a time.
constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
constexpr uint64_t kMaxTreeBytes = uint64_t{1} << 30;

}  // namespace

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

absl::Status ScanPieces(const FileRange& range,
                        absl::FunctionRef<absl::Status(std::span<const std::byte>)> take) {
  std::vector<std::byte> buffer(std::min(kPieceBytes, range.size_bytes));
  return ReadPieces(
      range, [&](uint64_t, uint64_t size) { return std::span(buffer).first(size); }, take);
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

absl::Status CheckFileSize(const std::string& path, uint64_t expected_bytes,
                           absl::string_view said_by) {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(const uint64_t actual, FileBytes(fd, path));
  if (actual != expected_bytes) {
    return absl::DataLossError(absl::StrCat(path, " has ", actual, " bytes where ", said_by,
                                            " says ", expected_bytes,
                                            "; the copy is incomplete or damaged"));
  }
  return absl::OkStatus();
}

absl::Status CheckFileDigest(const std::string& path, const FileEntry& file, OnPiece on_piece) {
  Sha256 hash;
  SHOAL_RETURN_IF_ERROR(
      ScanPieces({path, 0, file.size_bytes}, [&](std::span<const std::byte> piece) {
        hash.Update(piece);
        return on_piece(piece.size());
      }));
  return CompareDigest(hash.Finish(), file.sha256, path);
}

absl::StatusOr<std::vector<LayerCodebooks>> ReadCodebooksFile(const std::string& path,
                                                              const Manifest& manifest) {
  if (!HasCodebooks(manifest.settings.experts) || manifest.banks.empty()) {
    return std::vector<LayerCodebooks>();
  }
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
  std::vector<LayerCodebooks> books(manifest.banks.size());
  const auto bytes = std::as_writable_bytes(std::span(books));
  SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, 0, bytes));
  if (ToHex(Sha256::Of(bytes)) != manifest.codebooks_sha256) {
    return absl::DataLossError(absl::StrCat(path, " differs from its digest in ", kManifestFile));
  }
  return books;
}

absl::Status CheckLeaves(absl::string_view leaves, const Manifest& manifest, const BankEntry& bank,
                         absl::string_view name) {
  if (const uint64_t expected = LeavesBytes(manifest); leaves.size() != expected) {
    return absl::DataLossError(
        absl::StrCat(name, " has ", leaves.size(), " bytes where ", expected, " are called for"));
  }
  if (TreeRoot(leaves) != bank.tree_root) {
    return absl::DataLossError(
        absl::StrCat(name, ": root of the hash tree differs from ", kManifestFile, "'s"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadTreeFile(const std::string& path, const Manifest& manifest,
                                         const BankEntry& bank) {
  SHOAL_ASSIGN_OR_RETURN(std::string leaves, ReadTextFile(path, kMaxTreeBytes));
  SHOAL_RETURN_IF_ERROR(CheckLeaves(leaves, manifest, bank, path));
  return leaves;
}

uint64_t LeavesBytes(const Manifest& manifest) {
  return static_cast<uint64_t>(manifest.config.moe.num_experts) *
         static_cast<uint64_t>(manifest.unit_layout.num_units) * Sha256Digest().size();
}

std::string FormatDigests(const std::map<std::string, std::string>& sha256_by_path) {
  std::string text;
  for (const auto& [path, sha256] : sha256_by_path) {
    absl::StrAppend(&text, sha256, "  ", path, "\n");
  }
  return text;
}

std::string DigestIn(absl::string_view sums, absl::string_view path) {
  for (absl::string_view line : absl::StrSplit(sums, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits("  ", 1));
    if (parts.size() == 2 && parts[1] == path) {
      return std::string(parts[0]);
    }
  }
  return "";
}

}  // namespace shoal

// VerifyContainer: every byte of a container against every digest.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/io/crc32c.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr uint64_t kReportBytes = uint64_t{64} << 20;

class Verifier {
 public:
  Verifier(const Container& container, const std::function<void(const VerifyProgress&)>& progress)
      : container_(container), on_progress_(progress) {}

  std::vector<std::string> Run() {
    const Manifest& manifest = container_.manifest();
    for (const FileEntry& file : manifest.files) {
      progress_.bytes_total += file.size_bytes;
    }
    for (const FileEntry& file : manifest.files) {
      progress_.file = file.path;
      Keep(CheckDigest(file));
    }
    for (const TrunkEntry& entry : manifest.trunk) {
      std::vector<std::byte> bytes(entry.size_bytes);
      Keep(container_.ReadTrunkTensor(entry, bytes));
    }
    for (const BankEntry& bank : manifest.banks) {
      progress_.file = BankFile(bank.layer);
      Keep(CheckBank(bank));
    }
    Keep(CheckSums());
    CheckStrangers();
    return std::move(problems_);
  }

 private:
  void Keep(const absl::Status& status) {
    if (!status.ok()) {
      problems_.emplace_back(status.message());
    }
  }

  void Report(uint64_t bytes) {
    progress_.bytes_done += bytes;
    unreported_ += bytes;
    if (unreported_ >= kReportBytes || bytes == 0) {
      unreported_ = 0;
      if (on_progress_) {
        on_progress_(progress_);
      }
    }
  }

  absl::Status CheckDigest(const FileEntry& file) {
    Report(0);
    const std::string path = container_.PathOf(file.path);
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
    Sha256 hash;
    std::vector<std::byte> buffer(kPieceBytes);
    for (uint64_t at = 0; at < file.size_bytes;) {
      const auto piece =
          std::span(buffer).first(std::min<uint64_t>(kPieceBytes, file.size_bytes - at));
      SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, at, piece));
      DropPageCache(fd, at, piece.size());
      hash.Update(piece);
      at += piece.size();
      Report(piece.size());
    }
    if (ToHex(hash.Finish()) != file.sha256) {
      return absl::DataLossError(
          absl::StrCat(path, ": SHA-256 differs from ", kManifestFile, "'s"));
    }
    return absl::OkStatus();
  }

  // Every unit against its checksum and its digest in the tree, the tree against its root, the
  // padding against zero.
  absl::Status CheckBank(const BankEntry& bank) {
    const UnitLayout& layout = container_.manifest().unit_layout;
    const std::string tree_path = container_.PathOf(BankTreeFile(bank.layer));
    SHOAL_ASSIGN_OR_RETURN(const std::string leaves, ReadTextFile(tree_path, kMaxTreeBytes));
    if (TreeRoot(leaves) != bank.tree_root) {
      return absl::DataLossError(
          absl::StrCat(tree_path, ": root of the hash tree differs from ", kManifestFile, "'s"));
    }
    const std::string path = container_.PathOf(BankFile(bank.layer));
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
    std::vector<std::byte> record(layout.record_bytes);
    for (int64_t expert = 0; expert < container_.config().moe.num_experts; ++expert) {
      const uint64_t offset = static_cast<uint64_t>(expert) * layout.record_bytes;
      SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, offset, record));
      DropPageCache(fd, offset, record.size());
      CheckRecord({bank.layer, expert}, record, leaves, path);
    }
    return absl::OkStatus();
  }

  void CheckRecord(ExpertKey key, std::span<const std::byte> record, absl::string_view leaves,
                   const std::string& path) {
    const UnitLayout& layout = container_.manifest().unit_layout;
    constexpr size_t kDigestBytes = Sha256Digest().size();
    const auto padding = record.subspan(static_cast<size_t>(layout.num_units) * layout.unit_bytes);
    if (std::any_of(padding.begin(), padding.end(),
                    [](std::byte b) { return b != std::byte{0}; })) {
      problems_.push_back(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                       ": the padding after its units is not zero"));
    }
    for (int64_t unit = 0; unit < layout.num_units; ++unit) {
      const auto bytes =
          record.subspan(static_cast<size_t>(unit) * layout.unit_bytes, layout.unit_bytes);
      if (const absl::Status status = CheckUnit(layout, key, unit, bytes); !status.ok()) {
        problems_.push_back(absl::StrCat(path, ": ", std::string(status.message())));
        continue;
      }
      const Sha256Digest digest = Sha256::Of(bytes);
      const size_t leaf = static_cast<size_t>(key.expert * layout.num_units + unit) * kDigestBytes;
      const absl::string_view expected = leaves.substr(leaf, kDigestBytes);
      if (absl::string_view(reinterpret_cast<const char*>(digest.data()), kDigestBytes) !=
          expected) {
        problems_.push_back(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                         " unit ", unit, " differs from its digest in the tree"));
      }
    }
  }

  // SHA256SUMS must say exactly what the manifest says.
  absl::Status CheckSums() {
    const Manifest& manifest = container_.manifest();
    const std::string manifest_path = container_.PathOf(kManifestFile);
    SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(manifest_path, kMaxTreeBytes));
    std::map<std::string, std::string> sums;
    sums[std::string(kManifestFile)] = ToHex(Sha256::Of(text));
    for (const FileEntry& file : manifest.files) {
      sums[file.path] = file.sha256;
    }
    std::string expected;
    for (const auto& [path, sha256] : sums) {
      absl::StrAppend(&expected, sha256, "  ", path, "\n");
    }
    const std::string path = container_.PathOf(kDigestsFile);
    SHOAL_ASSIGN_OR_RETURN(const std::string actual, ReadTextFile(path, kMaxTreeBytes));
    if (actual != expected) {
      return absl::DataLossError(absl::StrCat(path, " differs from what ", kManifestFile, " says"));
    }
    return absl::OkStatus();
  }

  void CheckStrangers() {
    std::set<std::string> known = {std::string(kManifestFile), std::string(kDigestsFile)};
    for (const FileEntry& file : container_.manifest().files) {
      known.insert(file.path);
    }
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path root(container_.directory());
    for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
         it.increment(error)) {
      const std::string relative = it->path().lexically_relative(root).string();
      if (!it->is_directory(error) && !known.contains(relative)) {
        problems_.push_back(absl::StrCat(it->path().string(), " does not belong to the container"));
      }
    }
    if (error) {
      problems_.push_back(absl::StrCat("list ", container_.directory(), ": ", error.message()));
    }
  }

  static constexpr uint64_t kMaxTreeBytes = uint64_t{1} << 30;

  const Container& container_;
  const std::function<void(const VerifyProgress&)>& on_progress_;
  VerifyProgress progress_;
  uint64_t unreported_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> VerifyContainer(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress) {
  const auto container = Container::Open(directory);
  if (absl::IsDataLoss(container.status())) {
    // Damage that already shows at open is a finding, not a failure to look.
    return std::vector<std::string>{std::string(container.status().message())};
  }
  SHOAL_RETURN_IF_ERROR(container.status());
  return Verifier(**container, progress).Run();
}

}  // namespace shoal

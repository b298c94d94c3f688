// VerifyContainer: every byte of a container against every digest.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr size_t kDigestBytes = Sha256Digest().size();
constexpr uint64_t kReportBytes = uint64_t{64} << 20;

class Verifier {
 public:
  Verifier(const Container& container, const std::function<void(const VerifyProgress&)>& progress,
           std::stop_token stop)
      : container_(container), on_progress_(progress), stop_(std::move(stop)) {}

  absl::StatusOr<std::vector<std::string>> Run() {
    const Manifest& manifest = container_.manifest();
    for (const FileEntry& file : manifest.files) {
      progress_.bytes_total += file.size_bytes;
    }
    for (const TrunkEntry& entry : manifest.trunk) {
      progress_.bytes_total += entry.size_bytes;
    }
    progress_.bytes_total += manifest.banks.size() * BankBytes();
    const auto after_piece = [this](uint64_t bytes) { return AfterPiece(bytes); };
    for (const FileEntry& file : manifest.files) {
      Begin(file.path);
      Keep(container_.CheckDigest(file, after_piece));
    }
    Begin(kTrunkFile);
    for (const TrunkEntry& entry : manifest.trunk) {
      SHOAL_RETURN_IF_ERROR(CheckStop());
      Keep(container_.CheckTrunkTensor(entry, after_piece));
    }
    for (const BankEntry& bank : manifest.banks) {
      Begin(BankFile(bank.layer));
      Keep(CheckBank(bank));
    }
    Report(0);
    Keep(CheckSums());
    CheckStrangers();
    SHOAL_RETURN_IF_ERROR(CheckStop());
    return std::move(problems_);
  }

 private:
  void Keep(const absl::Status& status) {
    if (!status.ok()) {
      problems_.emplace_back(status.message());
    }
  }

  absl::Status CheckStop() const {
    return stop_.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  }

  uint64_t BankBytes() const {
    return static_cast<uint64_t>(container_.config().moe.num_experts) *
           container_.manifest().unit_layout.record_bytes;
  }

  void Begin(absl::string_view file) {
    progress_.file = std::string(file);
    Report(0);
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

  // What ends a check of many pieces.
  absl::Status AfterPiece(uint64_t bytes) {
    Report(bytes);
    return CheckStop();
  }

  // Every unit against its checksum and its digest in the tree, the tree against its root, the
  // padding against zero.
  absl::Status CheckBank(const BankEntry& bank) {
    const UnitLayout& layout = container_.manifest().unit_layout;
    const std::string tree_path = container_.PathOf(BankTreeFile(bank.layer));
    SHOAL_ASSIGN_OR_RETURN(const std::string leaves, ReadTextFile(tree_path, kMaxTreeBytes));
    const uint64_t expected_bytes = static_cast<uint64_t>(container_.config().moe.num_experts) *
                                    static_cast<uint64_t>(layout.num_units) * kDigestBytes;
    if (leaves.size() != expected_bytes) {
      return absl::DataLossError(absl::StrCat(tree_path, " has ", leaves.size(), " bytes where ",
                                              expected_bytes, " are called for"));
    }
    if (TreeRoot(leaves) != bank.tree_root) {
      return absl::DataLossError(
          absl::StrCat(tree_path, ": root of the hash tree differs from ", kManifestFile, "'s"));
    }
    const std::string path = container_.PathOf(BankFile(bank.layer));
    SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(path));
    // Unit by unit: what follows from a hostile config's sizes need not fit memory.
    std::vector<std::byte> buffer(std::max(layout.unit_bytes, kRecordAlignment));
    const uint64_t units_bytes = static_cast<uint64_t>(layout.num_units) * layout.unit_bytes;
    for (int64_t expert = 0; expert < container_.config().moe.num_experts; ++expert) {
      const uint64_t offset = static_cast<uint64_t>(expert) * layout.record_bytes;
      for (int64_t unit = 0; unit < layout.num_units; ++unit) {
        SHOAL_RETURN_IF_ERROR(CheckStop());
        const auto bytes = std::span(buffer).first(layout.unit_bytes);
        SHOAL_RETURN_IF_ERROR(
            ReadExactAt(fd, path, offset + static_cast<uint64_t>(unit) * bytes.size(), bytes));
        CheckUnitAndDigest({bank.layer, expert}, unit, bytes, leaves, path);
      }
      const auto padding = std::span(buffer).first(layout.record_bytes - units_bytes);
      SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, path, offset + units_bytes, padding));
      CheckPadding({bank.layer, expert}, padding, path);
      DropPageCache(fd, offset, layout.record_bytes);
      Report(layout.record_bytes);
    }
    return absl::OkStatus();
  }

  void CheckPadding(ExpertKey key, std::span<const std::byte> padding, const std::string& path) {
    if (std::any_of(padding.begin(), padding.end(),
                    [](std::byte b) { return b != std::byte{0}; })) {
      problems_.push_back(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                       ": the padding after its units is not zero"));
    }
  }

  void CheckUnitAndDigest(ExpertKey key, int64_t unit, std::span<const std::byte> bytes,
                          absl::string_view leaves, const std::string& path) {
    const UnitLayout& layout = container_.manifest().unit_layout;
    if (const absl::Status status = CheckUnit(layout, key, unit, bytes); !status.ok()) {
      problems_.push_back(absl::StrCat(path, ": ", std::string(status.message())));
      return;
    }
    const Sha256Digest digest = Sha256::Of(bytes);
    const size_t leaf = static_cast<size_t>(key.expert * layout.num_units + unit) * kDigestBytes;
    if (absl::string_view(reinterpret_cast<const char*>(digest.data()), kDigestBytes) !=
        leaves.substr(leaf, kDigestBytes)) {
      problems_.push_back(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                       " unit ", unit, " differs from its digest in the tree"));
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
  const std::stop_token stop_;
  VerifyProgress progress_;
  uint64_t unreported_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> VerifyContainer(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop) {
  const auto container = Container::Open(directory);
  if (absl::IsDataLoss(container.status())) {
    // Damage that already shows at open is a finding, not a failure to look.
    return std::vector<std::string>{std::string(container.status().message())};
  }
  SHOAL_RETURN_IF_ERROR(container.status());
  return Verifier(**container, progress, std::move(stop)).Run();
}

}  // namespace shoal

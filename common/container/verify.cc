// VerifyContainer and VerifyPartition: every byte of a directory against every digest.
#include "common/container/verify.h"

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/bank_scan.h"
#include "common/container/container.h"
#include "common/container/directory_files.h"
#include "common/container/partition.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr uint64_t kReportBytes = uint64_t{64} << 20;

// Progress and problems of one run, and the checks that containers and partitions share.
class Verifier {
 public:
  Verifier(const Manifest& manifest, const std::string& directory,
           const std::function<void(const VerifyProgress&)>& progress, std::stop_token stop)
      : manifest_(manifest),
        directory_(directory),
        on_progress_(progress),
        stop_(std::move(stop)) {}

  void Expect(uint64_t bytes) { progress_.bytes_total += bytes; }

  void Begin(absl::string_view file) {
    progress_.file = std::string(file);
    Report(0);
  }

  void Keep(const absl::Status& status) {
    if (!status.ok()) {
      problems_.emplace_back(status.message());
    }
  }

  absl::Status CheckStop() const {
    return stop_.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
  }

  // What ends a check of many pieces.
  absl::Status AfterPiece(uint64_t bytes) {
    Report(bytes);
    return CheckStop();
  }

  void CheckDigest(const FileEntry& file) {
    Begin(file.path);
    Keep(CheckFileDigest(PathOf(file.path), file,
                         [this](uint64_t bytes) { return AfterPiece(bytes); }));
  }

  // Every unit against its checksum and its digest in the tree, the padding against zero.
  absl::Status CheckBank(const BankRange& range, absl::string_view leaves) {
    const UnitLayout& layout = manifest_.unit_layout;
    return ScanBank(
        layout, range,
        [&](ExpertKey key, int64_t unit, std::span<const std::byte> bytes) {
          Keep(CheckUnitDigest(layout, key, unit, bytes, leaves, range.path));
          return CheckStop();
        },
        [&](ExpertKey key, std::span<const std::byte> padding) {
          Keep(CheckPadding(key, padding, range.path));
          Report(range.stride_bytes);
          return absl::OkStatus();
        });
  }

  absl::StatusOr<std::string> ReadTree(const BankEntry& bank) {
    return ReadTreeFile(PathOf(BankTreeFile(bank.layer)), manifest_, bank);
  }

  // SHA256SUMS must give exactly the digest of the file `first`, which lists `files`, and theirs;
  // and nothing but these is in the directory.
  std::vector<std::string> Finish(absl::string_view first, const std::vector<FileEntry>& files) {
    Report(0);
    std::map<std::string, std::string> sums;
    for (const FileEntry& file : files) {
      sums[file.path] = file.sha256;
    }
    Keep(CheckSums(first, sums));
    sums[std::string(first)];
    sums[std::string(kDigestsFile)];
    CheckStrangers(sums);
    return std::move(problems_);
  }

 private:
  std::string PathOf(absl::string_view file) const { return absl::StrCat(directory_, "/", file); }

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

  absl::Status CheckSums(absl::string_view first, std::map<std::string, std::string> sums) const {
    SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(PathOf(first), kMaxManifestBytes));
    sums[std::string(first)] = ToHex(Sha256::Of(text));
    SHOAL_ASSIGN_OR_RETURN(const std::string actual,
                           ReadTextFile(PathOf(kDigestsFile), kMaxManifestBytes));
    if (actual != FormatDigests(sums)) {
      return absl::DataLossError(
          absl::StrCat(PathOf(kDigestsFile), " differs from what ", first, " says"));
    }
    return absl::OkStatus();
  }

  void CheckStrangers(const std::map<std::string, std::string>& known) {
    namespace fs = std::filesystem;
    std::error_code error;
    const fs::path root(directory_);
    for (fs::recursive_directory_iterator it(root, error), end; !error && it != end;
         it.increment(error)) {
      const std::string relative = it->path().lexically_relative(root).string();
      if (!it->is_directory(error) && !known.contains(relative)) {
        problems_.push_back(absl::StrCat(it->path().string(), " does not belong here"));
      }
    }
    if (error) {
      problems_.push_back(absl::StrCat("list ", directory_, ": ", error.message()));
    }
  }

  const Manifest& manifest_;
  const std::string& directory_;
  const std::function<void(const VerifyProgress&)>& on_progress_;
  const std::stop_token stop_;
  VerifyProgress progress_;
  uint64_t unreported_ = 0;
  std::vector<std::string> problems_;
};

absl::StatusOr<std::vector<std::string>> Verify(const Container& container, Verifier verifier) {
  const Manifest& manifest = container.manifest();
  const ExpertSlice whole = manifest.whole_experts();
  for (const FileEntry& file : manifest.files) {
    verifier.Expect(file.size_bytes);
  }
  for (const TrunkEntry& entry : manifest.trunk) {
    verifier.Expect(entry.size_bytes);
  }
  for (const BankEntry& bank : manifest.banks) {
    verifier.Expect(manifest.FindFile(BankFile(bank.layer))->size_bytes);
  }
  for (const FileEntry& file : manifest.files) {
    verifier.CheckDigest(file);
  }
  verifier.Begin(kTrunkFile);
  for (const TrunkEntry& entry : manifest.trunk) {
    SHOAL_RETURN_IF_ERROR(verifier.CheckStop());
    verifier.Keep(container.CheckTrunkTensor(
        entry, [&verifier](uint64_t bytes) { return verifier.AfterPiece(bytes); }));
  }
  for (const BankEntry& bank : manifest.banks) {
    const std::string file = BankFile(bank.layer);
    verifier.Begin(file);
    const absl::StatusOr<std::string> leaves = verifier.ReadTree(bank);
    verifier.Keep(leaves.ok()
                      ? verifier.CheckBank(WholeBank(manifest.unit_layout, container.PathOf(file),
                                                     bank.layer, whole),
                                           *leaves)
                      : leaves.status());
  }
  std::vector<std::string> problems = verifier.Finish(kManifestFile, manifest.files);
  SHOAL_RETURN_IF_ERROR(verifier.CheckStop());
  return problems;
}

absl::StatusOr<std::vector<std::string>> Verify(const Partition& partition, Verifier verifier) {
  const Manifest& manifest = partition.manifest();
  for (const FileEntry& file : partition.files()) {
    verifier.Expect(file.size_bytes);
  }
  for (size_t i = 0; i < partition.slices().size(); ++i) {
    verifier.Expect(manifest.banks.size() * partition.BankBytes(i));
  }
  for (const FileEntry& file : partition.files()) {
    verifier.CheckDigest(file);
  }
  for (const BankEntry& bank : manifest.banks) {
    const absl::StatusOr<std::string> leaves = verifier.ReadTree(bank);
    verifier.Keep(leaves.status());
    for (size_t i = 0; leaves.ok() && i < partition.slices().size(); ++i) {
      const ExpertSlice& slice = partition.slices()[i];
      verifier.Begin(SliceBankFile(slice, bank.layer));
      verifier.Keep(verifier.CheckBank(
          WholeBank(manifest.unit_layout, partition.BankPath(i, bank.layer), bank.layer, slice),
          *leaves));
      SHOAL_RETURN_IF_ERROR(verifier.CheckStop());
    }
  }
  std::vector<std::string> problems = verifier.Finish(kPartitionFile, partition.files());
  SHOAL_RETURN_IF_ERROR(verifier.CheckStop());
  return problems;
}

template <typename Directory>
absl::StatusOr<std::vector<std::string>> OpenAndVerify(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop) {
  const auto opened = Directory::Open(directory);
  if (absl::IsDataLoss(opened.status())) {
    // Damage that already shows at open is a finding, not a failure to look.
    return std::vector<std::string>{std::string(opened.status().message())};
  }
  SHOAL_RETURN_IF_ERROR(opened.status());
  return Verify(**opened, Verifier((*opened)->manifest(), directory, progress, std::move(stop)));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> VerifyContainer(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop) {
  return OpenAndVerify<Container>(directory, progress, std::move(stop));
}

absl::StatusOr<std::vector<std::string>> VerifyPartition(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop) {
  return OpenAndVerify<Partition>(directory, progress, std::move(stop));
}

}  // namespace shoal

#include "common/container/partition.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/container/bank_scan.h"
#include "common/container/directory_files.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

// A text file whose digest SHA256SUMS has.
absl::StatusOr<std::string> ReadListedText(const std::string& directory, absl::string_view file,
                                           absl::string_view sums, uint64_t max_bytes) {
  const std::string path = absl::StrCat(directory, "/", file);
  SHOAL_ASSIGN_OR_RETURN(std::string text, ReadTextFile(path, max_bytes));
  SHOAL_RETURN_IF_ERROR(CompareDigest(Sha256::Of(text), DigestIn(sums, file), path));
  return text;
}

}  // namespace

std::string Partition::PathOf(absl::string_view file) const {
  return absl::StrCat(directory_, "/", file);
}

absl::StatusOr<std::unique_ptr<Partition>> Partition::Open(const std::string& directory) {
  auto partition = std::unique_ptr<Partition>(new Partition());
  partition->directory_ = directory;
  if (!HoldsPartition(directory)) {
    return absl::NotFoundError(absl::StrCat(directory, " is not a partition: it has no ",
                                            kPartitionFile,
                                            "; `shoal shard` makes partitions of a container"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string sums,
                         ReadTextFile(partition->PathOf(kDigestsFile), kMaxManifestBytes));
  const absl::Status status = partition->LoadFiles(sums);
  if (absl::IsNotFound(status)) {
    return absl::NotFoundError(absl::StrCat("the partition is incomplete: ", status.message(),
                                            "; copy the file again, or make the partition again"));
  }
  SHOAL_RETURN_IF_ERROR(status);
  return partition;
}

absl::Status Partition::LoadFiles(const std::string& sums) {
  SHOAL_ASSIGN_OR_RETURN(const std::string index_text,
                         ReadListedText(directory_, kPartitionFile, sums, kMaxManifestBytes));
  SHOAL_ASSIGN_OR_RETURN(const std::string manifest_text,
                         ReadListedText(directory_, kManifestFile, sums, kMaxManifestBytes));
  SHOAL_ASSIGN_OR_RETURN(const std::string config_json,
                         ReadListedText(directory_, kConfigFile, sums, kMaxConfigBytes));
  const std::string index_path = PathOf(kPartitionFile);
  SHOAL_ASSIGN_OR_RETURN(index_, ParsePartition(index_text, index_path));
  SHOAL_ASSIGN_OR_RETURN(manifest_,
                         ParseManifest(manifest_text, config_json, PathOf(kManifestFile)));
  SHOAL_RETURN_IF_ERROR(CheckPartition(index_, manifest_, index_path));
  for (const FileEntry& file : index_.files) {
    const std::string path = PathOf(file.path);
    SHOAL_RETURN_IF_ERROR(CheckFileSize(path, file.size_bytes, kPartitionFile));
    if (!absl::EndsWith(file.path, ".bank")) {
      SHOAL_RETURN_IF_ERROR(CheckFileDigest(path, file, [](uint64_t) { return absl::OkStatus(); }));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LayerCodebooks>> Partition::ReadCodebooks() const {
  return ReadCodebooksFile(PathOf(kCodebooksFile), manifest_);
}

std::string Partition::BankPath(size_t slice_index, int64_t layer) const {
  return PathOf(SliceBankFile(index_.slices[slice_index], layer));
}

uint64_t Partition::RecordBytes(size_t slice_index) const {
  return shoal::RecordBytes(manifest_.unit_layout, index_.slices[slice_index].units);
}

uint64_t Partition::BankBytes(size_t slice_index) const {
  return static_cast<uint64_t>(index_.slices[slice_index].experts.size()) *
         RecordBytes(slice_index);
}

bool HoldsPartition(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(absl::StrCat(directory, "/", kPartitionFile), ignored);
}

bool LacksPartitionFile(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::is_directory(absl::StrCat(directory, "/slices"), ignored) &&
         !HoldsPartition(directory);
}

}  // namespace shoal

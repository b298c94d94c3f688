#include "coordinator/pool/partition_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/bank_scan.h"
#include "common/container/directory_files.h"
#include "common/container/partition.h"
#include "common/container/staged_file.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

PartitionWriter::PartitionWriter(const Container& container, const PartitionIndex& wanted,
                                 StagingDirectory& staging, ShardedNode& node,
                                 ShardProgress& progress,
                                 const std::function<void(const ShardProgress&)>& on_progress,
                                 std::stop_token stop)
    : container_(container),
      manifest_(container.manifest()),
      index_(wanted),
      staging_(staging),
      node_(node),
      progress_(progress),
      on_progress_(on_progress),
      stop_(std::move(stop)),
      directory_(staging.content_path()) {
  index_.files.clear();
}

absl::Status PartitionWriter::Run() {
  SHOAL_RETURN_IF_ERROR(Begin());
  for (const BankEntry& bank : manifest_.banks) {
    SHOAL_RETURN_IF_ERROR(WriteLayer(bank));
  }
  SHOAL_RETURN_IF_ERROR(WriteSmallFiles());
  SHOAL_RETURN_IF_ERROR(WriteIndex());
  SHOAL_RETURN_IF_ERROR(CheckStop());
  // What cannot be opened must not get the final name.
  SHOAL_RETURN_IF_ERROR(Partition::Open(directory_).status());
  return staging_.Publish();
}

// The ledger says what the files beside it are for: partition.json without files.
absl::Status PartitionWriter::Begin() {
  const std::string ledger = SerializePartition(index_);
  const absl::StatusOr<std::string> found = ReadTextFile(staging_.ledger_path(), kMaxManifestBytes);
  if (found.ok() && *found != ledger) {
    return absl::FailedPreconditionError(
        absl::StrCat(staging_.path(),
                     " holds a partition that was begun with other slices or from another "
                     "container; remove it to start again, or go on with that plan"));
  }
  if (absl::IsNotFound(found.status())) {
    SHOAL_RETURN_IF_ERROR(WriteFileAtomically(staging_.ledger_path(), ledger));
  } else {
    SHOAL_RETURN_IF_ERROR(found.status());
  }
  std::vector<std::string> folders = {"experts", "slices"};
  for (const ExpertSlice& slice : index_.slices) {
    folders.push_back(SliceFolder(slice));
  }
  return staging_.PrepareContent(folders);
}

absl::Status PartitionWriter::WriteLayer(const BankEntry& bank) {
  progress_.step = absl::StrCat("node ", index_.name, ": layer ", bank.layer);
  Report();
  const std::string tree = BankTreeFile(bank.layer);
  SHOAL_ASSIGN_OR_RETURN(const std::string leaves,
                         ReadTreeFile(container_.PathOf(tree), manifest_, bank));
  for (const ExpertSlice& slice : index_.slices) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry file, KeepOrCopy(slice, bank.layer, leaves));
    index_.files.push_back(std::move(file));
    Report();
  }
  SHOAL_ASSIGN_OR_RETURN(FileEntry file, WriteSmall(tree, leaves));
  index_.files.push_back(std::move(file));
  return absl::OkStatus();
}

absl::StatusOr<FileEntry> PartitionWriter::KeepOrCopy(const ExpertSlice& slice, int64_t layer,
                                                      absl::string_view leaves) {
  absl::StatusOr<FileEntry> kept = CheckKept(slice, layer, leaves);
  if (kept.ok()) {
    ++node_.banks_kept;
    progress_.bytes_done += kept->size_bytes;
    progress_.bytes_kept += kept->size_bytes;
    return kept;
  }
  if (absl::IsDataLoss(kept.status())) {
    const std::string file = SliceBankFile(slice, layer);
    node_.remade_files.push_back(file);
    std::error_code error;
    std::filesystem::remove(absl::StrCat(directory_, "/", file), error);
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("remove ", directory_, "/", file));
    }
  } else if (!absl::IsNotFound(kept.status())) {
    return kept;
  }
  ++node_.banks_copied;
  return Copy(slice, layer, leaves);
}

// A bank that an earlier run finished, read again: it may have been damaged since.
absl::StatusOr<FileEntry> PartitionWriter::CheckKept(const ExpertSlice& slice, int64_t layer,
                                                     absl::string_view leaves) {
  const UnitLayout& layout = manifest_.unit_layout;
  FileEntry file{SliceBankFile(slice, layer), 0, ""};
  const BankRange bank = WholeBank(layout, absl::StrCat(directory_, "/", file.path), layer, slice);
  file.size_bytes = static_cast<uint64_t>(slice.experts.size()) * bank.stride_bytes;
  SHOAL_RETURN_IF_ERROR(CheckFileSize(bank.path, file.size_bytes, "the plan"));
  Sha256 hash;
  SHOAL_RETURN_IF_ERROR(ScanBank(
      layout, bank,
      [&](ExpertKey key, int64_t unit, std::span<const std::byte> bytes) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(CheckUnitDigest(layout, key, unit, bytes, leaves, bank.path));
        hash.Update(bytes);
        return CheckStop();
      },
      [&](ExpertKey key, std::span<const std::byte> padding) {
        hash.Update(padding);
        return CheckPadding(key, padding, bank.path);
      }));
  file.sha256 = ToHex(hash.Finish());
  return file;
}

absl::StatusOr<FileEntry> PartitionWriter::Copy(const ExpertSlice& slice, int64_t layer,
                                                absl::string_view leaves) {
  const UnitLayout& layout = manifest_.unit_layout;
  const BankRange bank = PartOfBank(layout, container_.PathOf(BankFile(layer)), layer, slice);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<StagedFile> file,
                         StagedFile::Create(directory_, SliceBankFile(slice, layer)));
  SHOAL_RETURN_IF_ERROR(ScanBank(
      layout, bank,
      [&](ExpertKey key, int64_t unit, std::span<const std::byte> bytes) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(CheckStop());
        SHOAL_RETURN_IF_ERROR(CheckUnitDigest(layout, key, unit, bytes, leaves, bank.path));
        return file->Append(bytes);
      },
      [&](ExpertKey /*key*/, std::span<const std::byte> /*padding*/) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(file->PadTo(kRecordAlignment));
        progress_.bytes_done += RecordBytes(layout, slice.units);
        Report();
        return absl::OkStatus();
      }));
  return file->Publish();
}

absl::Status PartitionWriter::WriteSmallFiles() {
  progress_.step = absl::StrCat("node ", index_.name, ": small files");
  Report();
  SHOAL_ASSIGN_OR_RETURN(const std::string manifest_text,
                         ReadTextFile(container_.PathOf(kManifestFile), kMaxManifestBytes));
  std::map<absl::string_view, absl::string_view> texts = {{kManifestFile, manifest_text},
                                                          {kConfigFile, container_.config_json()}};
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LayerCodebooks> books, container_.ReadCodebooks());
  if (!books.empty()) {
    const auto bytes = std::as_bytes(std::span(books));
    texts[kCodebooksFile] = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  for (const auto& [name, text] : texts) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry file, WriteSmall(name, text));
    index_.files.push_back(std::move(file));
  }
  return absl::OkStatus();
}

absl::Status PartitionWriter::WriteIndex() {
  std::sort(index_.files.begin(), index_.files.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.path < b.path; });
  SHOAL_ASSIGN_OR_RETURN(const FileEntry index,
                         WriteSmall(kPartitionFile, SerializePartition(index_)));
  std::map<std::string, std::string> sums = {{index.path, index.sha256}};
  for (const FileEntry& file : index_.files) {
    sums[file.path] = file.sha256;
    node_.partition_bytes += file.size_bytes;
  }
  return WriteSmall(kDigestsFile, FormatDigests(sums)).status();
}

absl::StatusOr<FileEntry> PartitionWriter::WriteSmall(absl::string_view name,
                                                      absl::string_view content) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<StagedFile> file,
                         StagedFile::Create(directory_, std::string(name)));
  SHOAL_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(content.data(), content.size()))));
  return file->Publish();
}

void PartitionWriter::Report() {
  if (on_progress_) {
    on_progress_(progress_);
  }
}

absl::Status PartitionWriter::CheckStop() const {
  return stop_.stop_requested() ? absl::CancelledError("stopped") : absl::OkStatus();
}

}  // namespace shoal

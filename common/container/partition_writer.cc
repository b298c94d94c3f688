#include "common/container/partition_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

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
namespace {

namespace fs = std::filesystem;

// One object serves one Run.
class PartitionWriter {
 public:
  PartitionWriter(PartitionSource& source, const PartitionIndex& wanted, StagingDirectory& staging,
                  WrittenPartition& written, PartitionProgress& progress,
                  const OnPartitionProgress& on_progress, std::stop_token stop)
      : source_(source),
        manifest_(source.manifest()),
        index_(wanted),
        staging_(staging),
        written_(written),
        progress_(progress),
        on_progress_(on_progress),
        stop_(std::move(stop)),
        directory_(staging.content_path()) {
    index_.files.clear();
  }

  absl::Status Run();

 private:
  absl::Status Begin();
  absl::Status WriteLayer(const BankEntry& bank);
  // The digests of a bank's units: of an earlier run where it finished them.
  absl::StatusOr<std::string> Leaves(const BankEntry& bank);
  absl::StatusOr<FileEntry> KeepOrCopy(const ExpertSlice& slice, int64_t layer,
                                       absl::string_view leaves);
  absl::StatusOr<FileEntry> CheckKept(const ExpertSlice& slice, int64_t layer,
                                      absl::string_view leaves);
  absl::StatusOr<FileEntry> Copy(const ExpertSlice& slice, int64_t layer, absl::string_view leaves);
  absl::Status WriteSmallFiles();
  absl::Status WriteIndex();
  absl::StatusOr<FileEntry> WriteSmall(absl::string_view name, absl::string_view content);
  void Report();
  absl::Status CheckStop() const;

  PartitionSource& source_;
  const Manifest& manifest_;
  PartitionIndex index_;
  StagingDirectory& staging_;
  WrittenPartition& written_;
  PartitionProgress& progress_;
  const OnPartitionProgress& on_progress_;
  const std::stop_token stop_;
  const std::string directory_;  // of the partition in the making
};

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
  SHOAL_ASSIGN_OR_RETURN(const std::string leaves, Leaves(bank));
  SHOAL_ASSIGN_OR_RETURN(FileEntry tree, WriteSmall(BankTreeFile(bank.layer), leaves));
  index_.files.push_back(std::move(tree));
  for (const ExpertSlice& slice : index_.slices) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry file, KeepOrCopy(slice, bank.layer, leaves));
    index_.files.push_back(std::move(file));
    Report();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PartitionWriter::Leaves(const BankEntry& bank) {
  absl::StatusOr<std::string> kept =
      ReadTreeFile(absl::StrCat(directory_, "/", BankTreeFile(bank.layer)), manifest_, bank);
  return kept.ok() ? std::move(kept) : source_.ReadLeaves(bank);
}

absl::StatusOr<FileEntry> PartitionWriter::KeepOrCopy(const ExpertSlice& slice, int64_t layer,
                                                      absl::string_view leaves) {
  absl::StatusOr<FileEntry> kept = CheckKept(slice, layer, leaves);
  if (kept.ok()) {
    ++written_.banks_kept;
    progress_.bytes_done += kept->size_bytes;
    progress_.bytes_kept += kept->size_bytes;
    return kept;
  }
  if (absl::IsDataLoss(kept.status())) {
    const std::string file = SliceBankFile(slice, layer);
    written_.remade_files.push_back(file);
    std::error_code error;
    fs::remove(absl::StrCat(directory_, "/", file), error);
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("remove ", directory_, "/", file));
    }
  } else if (!absl::IsNotFound(kept.status())) {
    return kept;
  }
  ++written_.banks_copied;
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
  const uint64_t record_bytes = RecordBytes(manifest_.unit_layout, slice.units);
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<StagedFile> file,
                         StagedFile::Create(directory_, SliceBankFile(slice, layer)));
  SHOAL_RETURN_IF_ERROR(source_.ReadUnits(
      layer, slice, leaves,
      [&](ExpertKey /*key*/, int64_t unit, std::span<const std::byte> bytes) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(CheckStop());
        SHOAL_RETURN_IF_ERROR(file->Append(bytes));
        if (unit + 1 < slice.units.end) {
          return absl::OkStatus();
        }
        SHOAL_RETURN_IF_ERROR(file->PadTo(kRecordAlignment));
        progress_.bytes_done += record_bytes;
        Report();
        return absl::OkStatus();
      }));
  return file->Publish();
}

absl::Status PartitionWriter::WriteSmallFiles() {
  progress_.step = absl::StrCat("node ", index_.name, ": small files");
  Report();
  SHOAL_ASSIGN_OR_RETURN(const std::string manifest_text, source_.ReadManifestText());
  SHOAL_ASSIGN_OR_RETURN(const std::string codebooks, source_.ReadCodebooks());
  std::map<absl::string_view, absl::string_view> texts = {{kManifestFile, manifest_text},
                                                          {kConfigFile, source_.config_json()}};
  if (!codebooks.empty()) {
    texts[kCodebooksFile] = codebooks;
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
    written_.partition_bytes += file.size_bytes;
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

// Size on disk of all files of a partition; more than manifest.json, partition.json and SHA256SUMS
// take.
uint64_t DiskBytes(const std::vector<FileEntry>& files, uint64_t manifest_bytes) {
  constexpr uint64_t kBytesPerEntry = 512;
  uint64_t total = manifest_bytes + kBytesPerEntry * files.size();
  for (const FileEntry& file : files) {
    total += AlignUp(file.size_bytes, kRecordAlignment);
  }
  return total;
}

// Of the banks that an earlier run finished, by their sizes. (Whether they are whole is looked at
// later; one that is not is removed before it is made again.)
uint64_t KeptBytes(const std::vector<FileEntry>& files, const std::string& target) {
  uint64_t kept = 0;
  for (const FileEntry& file : files) {
    std::error_code error;
    const uint64_t size = fs::file_size(
        absl::StrCat(target, ".partial/", kPartitionStaging.content, "/", file.path), error);
    kept += !error && file.path.ends_with(".bank") && size == file.size_bytes ? size : 0;
  }
  return kept;
}

}  // namespace

PartitionNeed NeedOfPartition(const Manifest& manifest, uint64_t manifest_bytes,
                              std::span<const ExpertSlice> slices, const std::string& target) {
  const std::vector<FileEntry> files = PartitionFiles(manifest, slices);
  PartitionNeed need;
  for (const FileEntry& file : files) {
    need.bank_bytes += file.path.ends_with(".bank") ? file.size_bytes : 0;
  }
  need.missing_bytes = DiskBytes(files, manifest_bytes) - KeptBytes(files, target);
  return need;
}

absl::Status WritePartition(PartitionSource& source, const PartitionIndex& wanted,
                            StagingDirectory& staging, WrittenPartition& written,
                            PartitionProgress& progress, const OnPartitionProgress& on_progress,
                            std::stop_token stop) {
  return PartitionWriter(source, wanted, staging, written, progress, on_progress, std::move(stop))
      .Run();
}

}  // namespace shoal

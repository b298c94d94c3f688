#include "coordinator/convert/conversion.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/container/staged_file.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "coordinator/convert/bank_writer.h"
#include "coordinator/convert/codebook_training.h"
#include "coordinator/convert/container_files.h"
#include "coordinator/convert/trunk_file_writer.h"
#include "coordinator/convert/trunk_writer.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

}  // namespace

Conversion::Conversion(const Checkpoint& checkpoint, const SourceModel& source,
                       const ConvertSettings& settings, int num_jobs, StagingDirectory& staging,
                       Ledger& ledger, const ProgressFunction& on_progress, std::stop_token stop)
    : checkpoint_(checkpoint),
      source_(source),
      settings_(settings),
      staging_(staging),
      ledger_(ledger),
      on_progress_(on_progress),
      stop_(std::move(stop)),
      pool_(num_jobs > 0 ? num_jobs : UsableCpus()),
      directory_(staging.content_path()) {
  progress_.source_bytes_total = source.total_bytes();
}

absl::StatusOr<ConvertReport> Conversion::Run() {
  SHOAL_RETURN_IF_ERROR(LayOut());
  absl::Status status = CheckSpace();
  if (status.ok()) {
    status = Work();
  }
  if (absl::IsResourceExhausted(status)) {
    return Annotate(status, absl::StrCat("the container needs another ",
                                         InBytes(container_bytes_ - finished_bytes_),
                                         " of disk; free them and run the same command again"));
  }
  SHOAL_RETURN_IF_ERROR(status);
  return std::move(report_);
}

absl::Status Conversion::LayOut() {
  trunk_entries_ = LayOutTrunk(source_, settings_.trunk);
  if (!source_.moe_layers.empty()) {
    SHOAL_ASSIGN_OR_RETURN(layout_, UnitLayout::Make(settings_.experts, source_.config.hidden_size,
                                                     source_.config.moe.moe_intermediate_size));
  }
  container_bytes_ = ContainerBytes(source_.config, layout_, trunk_entries_, source_.copies) +
                     source_.source_tensors_bytes;
  return absl::OkStatus();
}

std::vector<std::string> Conversion::Folders() const {
  return source_.moe_layers.empty() ? std::vector<std::string>()
                                    : std::vector<std::string>{"experts"};
}

absl::Status Conversion::CheckSpace() {
  uint64_t kept = 0;
  if (ledger_.header()) {
    SHOAL_RETURN_IF_ERROR(staging_.PrepareContent(Folders()));
    SHOAL_RETURN_IF_ERROR(CheckKeptFiles());
    kept = finished_bytes_;
  }
  SHOAL_ASSIGN_OR_RETURN(const uint64_t free, FreeDiskBytes(staging_.path()));
  if (container_bytes_ - kept > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the file system of ", staging_.path(), " has ", InBytes(free), " free"));
  }
  return absl::OkStatus();
}

absl::Status Conversion::CheckKeptFiles() {
  if (const auto& trunk = ledger_.trunk()) {
    SHOAL_RETURN_IF_ERROR(Report("check trunk of an earlier run"));
    const bool plausible = trunk->file.size_bytes == TrunkFileBytes(trunk_entries_) &&
                           trunk->crcs.size() == trunk_entries_.size() &&
                           trunk->source_digests.size() == NumTrunkSources();
    SHOAL_ASSIGN_OR_RETURN(const bool whole, IsWhole(trunk->file, std::string(kTrunkFile)));
    if (plausible && whole) {
      trunk_ = *trunk;
      Keep(source_.trunk_bytes, trunk->file.size_bytes);
    }
  }
  for (size_t i = 0; i < source_.moe_layers.size(); ++i) {
    const int64_t index = source_.moe_layers[i];
    const auto it = ledger_.layers().find(index);
    if (it == ledger_.layers().end()) {
      continue;
    }
    const LedgerLayer& layer = it->second;
    SHOAL_RETURN_IF_ERROR(Report(absl::StrCat("check layer ", index, " of an earlier run")));
    const auto num_experts = static_cast<uint64_t>(source_.config.moe.num_experts);
    const bool plausible = layer.bank.size_bytes == num_experts * layout_.record_bytes &&
                           layer.codebooks.has_value() == HasCodebooks(settings_.experts) &&
                           layer.source_digests.size() == num_experts * kExpertMatrices;
    SHOAL_ASSIGN_OR_RETURN(const bool bank, IsWhole(layer.bank, BankFile(index)));
    SHOAL_ASSIGN_OR_RETURN(const bool tree, IsWhole(layer.tree, BankTreeFile(index)));
    if (plausible && bank && tree) {
      layers_[index] = layer;
      Keep(source_.layer_bytes[i], layer.bank.size_bytes + layer.tree.size_bytes);
    }
  }
  return Report("check finished");
}

absl::StatusOr<bool> Conversion::IsWhole(const FileEntry& recorded, const std::string& path) {
  const auto found = HashFile(directory_, path);
  if (found.ok() && recorded.path == path && found->size_bytes == recorded.size_bytes &&
      found->sha256 == recorded.sha256) {
    return true;
  }
  report_.remade_files.push_back(path);
  std::error_code error;
  fs::remove(absl::StrCat(directory_, "/", path), error);
  return error ? absl::StatusOr<bool>(
                     ErrnoToStatus(error.value(), absl::StrCat("remove ", directory_, "/", path)))
               : false;
}

void Conversion::Keep(uint64_t source_bytes, uint64_t file_bytes) {
  progress_.source_bytes_done += source_bytes;
  progress_.source_bytes_resumed += source_bytes;
  finished_bytes_ += file_bytes;
}

absl::Status Conversion::Work() {
  if (!ledger_.header()) {
    SHOAL_RETURN_IF_ERROR(Report("begin"));
    SHOAL_RETURN_IF_ERROR(ledger_.Start({CreatedBy(), settings_, checkpoint_.fingerprint()}));
    SHOAL_RETURN_IF_ERROR(staging_.PrepareContent(Folders()));
  }
  if (!trunk_) {
    SHOAL_RETURN_IF_ERROR(WriteTrunkFile());
  }
  for (const int64_t layer : source_.moe_layers) {
    if (!layers_.contains(layer)) {
      SHOAL_RETURN_IF_ERROR(WriteLayer(layer));
    }
  }
  SHOAL_RETURN_IF_ERROR(WriteSmallFiles());
  SHOAL_RETURN_IF_ERROR(Report("check the container"));
  SHOAL_RETURN_IF_ERROR(Container::Open(directory_).status());
  SHOAL_ASSIGN_OR_RETURN(report_.container_bytes, DirectoryBytes(directory_));
  SHOAL_RETURN_IF_ERROR(Report("publish"));
  return staging_.Publish();
}

absl::Status Conversion::WriteTrunkFile() {
  SHOAL_RETURN_IF_ERROR(Report("trunk"));
  SHOAL_ASSIGN_OR_RETURN(trunk_,
                         WriteTrunk(checkpoint_, source_, trunk_entries_, directory_, pool_,
                                    [this](uint64_t bytes) { return Advance("trunk", bytes); }));
  SHOAL_RETURN_IF_ERROR(Report("trunk written"));
  SHOAL_RETURN_IF_ERROR(ledger_.Record(*trunk_));
  finished_bytes_ += trunk_->file.size_bytes;
  return Report("trunk recorded");
}

absl::Status Conversion::WriteLayer(int64_t layer) {
  const std::string step = absl::StrCat("layer ", layer);
  BankJob job{checkpoint_,  source_.config, layout_,   layer,
              std::nullopt, settings_.seed, directory_};
  if (HasCodebooks(settings_.experts)) {
    SHOAL_RETURN_IF_ERROR(Report(absl::StrCat(step, " codebooks")));
    SHOAL_ASSIGN_OR_RETURN(job.codebooks, TrainLayerCodebooks(checkpoint_, source_.config, layout_,
                                                              layer, settings_.seed, pool_));
  }
  const std::string experts = absl::StrCat(step, " experts");
  SHOAL_RETURN_IF_ERROR(Report(experts));
  SHOAL_ASSIGN_OR_RETURN(LedgerLayer written, WriteBank(job, pool_, [&](uint64_t bytes) {
                           return Advance(experts, bytes);
                         }));
  SHOAL_RETURN_IF_ERROR(Report(absl::StrCat(step, " written")));
  SHOAL_RETURN_IF_ERROR(ledger_.Record(written));
  finished_bytes_ += written.bank.size_bytes + written.tree.size_bytes;
  layers_[layer] = std::move(written);
  return Report(absl::StrCat(step, " recorded"));
}

absl::Status Conversion::WriteSmallFiles() {
  SHOAL_RETURN_IF_ERROR(Report("small files"));
  std::vector<FileEntry> files = {trunk_->file};
  for (const auto& [index, layer] : layers_) {
    files.push_back(layer.bank);
    files.push_back(layer.tree);
  }
  for (const CopiedFile& copy : source_.copies) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry file, WriteSmall(copy.name, copy.content));
    files.push_back(std::move(file));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string sources, SourceTensorLines());
  SHOAL_ASSIGN_OR_RETURN(FileEntry file, WriteSmall(std::string(kSourceTensorsFile), sources));
  Manifest manifest;
  manifest.source_tensors_sha256 = file.sha256;
  files.push_back(std::move(file));
  if (const std::string books = CodebookBytes(); !books.empty()) {
    SHOAL_ASSIGN_OR_RETURN(FileEntry entry, WriteSmall(std::string(kCodebooksFile), books));
    manifest.codebooks_sha256 = entry.sha256;
    files.push_back(std::move(entry));
  }
  manifest.files = std::move(files);
  return WriteManifest(manifest);
}

absl::Status Conversion::WriteManifest(Manifest& manifest) {
  manifest.settings = settings_;
  manifest.config = source_.config;
  manifest.unit_layout = layout_;
  manifest.source_fingerprint = checkpoint_.fingerprint();
  manifest.trunk = trunk_entries_;
  for (size_t i = 0; i < manifest.trunk.size(); ++i) {
    manifest.trunk[i].crc32c = trunk_->crcs[i];
  }
  for (const auto& [index, layer] : layers_) {
    manifest.banks.push_back({index, layer.tree_root, layer.relative_error});
    report_.layers.push_back({index, layer.relative_error});
  }
  report_.trunk = settings_.trunk;
  report_.trunk_relative_error = trunk_->relative_error;

  SHOAL_RETURN_IF_ERROR(Report("manifest"));
  SHOAL_RETURN_IF_ERROR(
      WriteManifestFiles(checkpoint_.config_json(), manifest,
                         [this](const std::string& name, absl::string_view content) {
                           return WriteSmall(name, content);
                         }));
  report_.identity = manifest.identity;
  return absl::OkStatus();
}

absl::StatusOr<FileEntry> Conversion::WriteSmall(const std::string& name,
                                                 absl::string_view content) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file, StagedFile::Create(directory_, name));
  SHOAL_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(content.data(), content.size()))));
  SHOAL_RETURN_IF_ERROR(Report(absl::StrCat(name, " written")));
  return file->Publish();
}

size_t Conversion::NumTrunkSources() const {
  return std::count_if(source_.trunk.begin(), source_.trunk.end(),
                       [](const TrunkSource& tensor) { return tensor.counts; });
}

absl::StatusOr<std::string> Conversion::SourceTensorLines() const {
  std::map<std::string, std::string> lines;  // by tensor name
  const auto add = [&lines](const std::string& name, const TensorInfo& info,
                            const Sha256Digest& digest) {
    lines[name] = SourceTensorLine(ToHex(digest), info.dtype, info.shape, name);
  };
  auto digest = trunk_->source_digests.begin();
  for (const TrunkSource& tensor : source_.trunk) {
    if (tensor.counts) {
      add(tensor.tensor.source_name, tensor.info, *digest++);
    }
  }
  for (const auto& [index, layer] : layers_) {
    for (int64_t expert = 0; expert < source_.config.moe.num_experts; ++expert) {
      SHOAL_ASSIGN_OR_RETURN(const auto tensors,
                             FindExpert(checkpoint_, source_.config, {index, expert}));
      for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
        add(tensors[matrix].name, tensors[matrix].info,
            layer.source_digests[expert * kExpertMatrices + matrix]);
      }
    }
  }
  std::string text;
  for (const auto& [name, line] : lines) {
    text += line;
  }
  return text;
}

std::string Conversion::CodebookBytes() const {
  std::string bytes;
  for (const auto& [index, layer] : layers_) {
    if (layer.codebooks) {
      bytes.append(reinterpret_cast<const char*>(&*layer.codebooks), sizeof(LayerCodebooks));
    }
  }
  return bytes;
}

absl::Status Conversion::Advance(const std::string& step, uint64_t source_bytes) {
  progress_.source_bytes_done += source_bytes;
  return Report(step);
}

absl::Status Conversion::Report(const std::string& step) {
  progress_.step = step;
  if (on_progress_) {
    on_progress_(progress_);
  }
  return stop_.stop_requested() ? absl::CancelledError(absl::StrCat(
                                      "stopped; what is finished is kept in ", staging_.path(),
                                      ", run the same command again to go on"))
                                : absl::OkStatus();
}

}  // namespace shoal

#include "coordinator/synth/synthesize.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/container/manifest.h"
#include "common/container/staged_file.h"
#include "common/container/staging_directory.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/bank_file_writer.h"
#include "coordinator/convert/container_files.h"
#include "coordinator/convert/trunk_file_writer.h"
#include "coordinator/synth/synthetic_weights.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ProgressFunction = std::function<void(const SynthProgress&)>;

constexpr StagingNames kStaging = {"synth.begun", "container", "a synthesis"};
constexpr TrunkType kTrunk = TrunkType::kQ8;

// Records in memory at a time.
constexpr uint64_t kBatchBytes = uint64_t{64} << 20;

// There is no source whose tensors could be listed; what takes their place in the identity.
std::string SourceText() {
  return absl::StrCat("random weights, revision ", kSyntheticRevision, "\n");
}

std::string CodebookBytes(uint64_t seed, const ModelConfig& config) {
  const SyntheticWeights weights(seed);
  std::vector<LayerCodebooks> books;
  books.reserve(static_cast<size_t>(config.num_moe_layers()));
  for (const int64_t layer : config.moe_layers()) {
    books.push_back(weights.Codebooks(layer));
  }
  return std::string(reinterpret_cast<const char*>(books.data()),
                     books.size() * sizeof(LayerCodebooks));
}

// Everything of the container but files and trees: known before anything is written.
struct Draft {
  SyntheticModel model;
  std::vector<TrunkTensor> tensors;
  std::string codebooks;  // empty where the codec has none
  Manifest manifest;

  const std::string& config_json() const { return model.files.front().content; }
};

absl::StatusOr<Draft> MakeDraft(const SynthOptions& options) {
  if (options.seed > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("seed ", options.seed, " is beyond 2^63 - 1"));
  }
  if (options.experts == ExpertCodec::kF32) {
    return absl::InvalidArgumentError("random experts are of tcq3 or rvq3");
  }
  Draft draft;
  SHOAL_ASSIGN_OR_RETURN(draft.model, MakeSyntheticModel(options.shape));
  draft.tensors = TrunkTensors(draft.model.config);
  Manifest& manifest = draft.manifest;
  manifest.settings = {options.experts, kTrunk, options.seed};
  manifest.config = draft.model.config;
  SHOAL_ASSIGN_OR_RETURN(manifest.unit_layout,
                         UnitLayout::Make(options.experts, manifest.config.hidden_size,
                                          manifest.config.moe.moe_intermediate_size));
  manifest.source_fingerprint = absl::StrCat("random weights like ", options.shape.like);
  manifest.source_tensors_sha256 = ToHex(Sha256::Of(SourceText()));
  if (HasCodebooks(options.experts)) {
    draft.codebooks = CodebookBytes(options.seed, manifest.config);
    manifest.codebooks_sha256 = ToHex(Sha256::Of(draft.codebooks));
  }
  uint64_t offset_bytes = 0;
  manifest.trunk.reserve(draft.tensors.size());
  for (const TrunkTensor& tensor : draft.tensors) {
    const TrunkType stored = StoredTrunkType(tensor.role, kTrunk, /*source_is_bf16=*/true);
    manifest.trunk.push_back(LayOutTrunkEntry(tensor.name, stored, tensor.shape, offset_bytes));
    offset_bytes = manifest.trunk.back().offset_bytes + manifest.trunk.back().size_bytes;
  }
  manifest.identity = ComputeIdentity(draft.config_json(), manifest);
  return draft;
}

// The report on a container that is there already; ALREADY_EXISTS where it is another.
absl::StatusOr<SynthReport> ReportExisting(const std::string& directory,
                                           const std::string& identity) {
  const auto container = Container::Open(directory);
  if (!container.ok() || (*container)->manifest().identity != identity) {
    return absl::AlreadyExistsError(
        absl::StrCat(directory,
                     container.ok() ? " holds another container"
                                    : absl::StrCat(" exists and is not a whole container (",
                                                   std::string(container.status().message()), ")"),
                     "; remove it or choose another directory"));
  }
  SynthReport report;
  report.identity = identity;
  report.already_there = true;
  SHOAL_ASSIGN_OR_RETURN(report.container_bytes, DirectoryBytes(directory));
  return report;
}

// One object serves one Run, on one thread.
class Synthesis {
 public:
  Synthesis(Draft draft, const SynthOptions& options, StagingDirectory& staging,
            const ProgressFunction& on_progress, std::stop_token stop)
      : draft_(std::move(draft)),
        manifest_(draft_.manifest),
        options_(options),
        weights_(options.seed),
        staging_(staging),
        directory_(staging.content_path()),
        on_progress_(on_progress),
        stop_(std::move(stop)),
        pool_(options.num_jobs > 0 ? options.num_jobs : UsableCpus()) {
    progress_.bytes_total =
        TrunkFileBytes(manifest_.trunk) + static_cast<uint64_t>(manifest_.config.num_moe_layers() *
                                                                manifest_.config.moe.num_experts) *
                                              manifest_.unit_layout.record_bytes;
  }

  absl::StatusOr<SynthReport> Run() {
    SHOAL_RETURN_IF_ERROR(RemoveContent());
    SHOAL_RETURN_IF_ERROR(CheckSpace());
    absl::StatusOr<SynthReport> report = Work();
    if (!report.ok()) {
      // Nothing of it could be used again. What cannot be removed is removed by the next run.
      RemoveContent().IgnoreError();
    }
    return report;
  }

 private:
  absl::Status RemoveContent() {
    std::error_code error;
    fs::remove_all(directory_, error);
    if (!error) {
      fs::remove(staging_.ledger_path(), error);
    }
    return error ? ErrnoToStatus(error.value(), absl::StrCat("empty ", staging_.path()))
                 : absl::OkStatus();
  }

  absl::Status CheckSpace() {
    const uint64_t needed = ContainerBytes(manifest_.config, manifest_.unit_layout, manifest_.trunk,
                                           draft_.model.files);
    SHOAL_ASSIGN_OR_RETURN(const uint64_t free, options_.free_disk_bytes(staging_.path()));
    return needed <= free ? absl::OkStatus()
                          : absl::ResourceExhaustedError(absl::StrCat(
                                "the container needs ", InBytes(needed), " of disk, and the file ",
                                "system of ", staging_.path(), " has ", InBytes(free),
                                " free; free some, or ask for fewer layers or experts"));
  }

  absl::StatusOr<SynthReport> Work() {
    // Says whose directory it is, should this process be killed.
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> begun,
                           StagedFile::Create(staging_.path(), std::string(kStaging.ledger)));
    SHOAL_RETURN_IF_ERROR(begun->Publish().status());
    SHOAL_RETURN_IF_ERROR(staging_.PrepareContent({"experts"}));
    SHOAL_RETURN_IF_ERROR(WriteTrunkFile());
    for (const int64_t layer : manifest_.config.moe_layers()) {
      SHOAL_RETURN_IF_ERROR(WriteLayer(layer));
    }
    SHOAL_RETURN_IF_ERROR(WriteSmallFiles());
    SHOAL_RETURN_IF_ERROR(Advance("check the container", 0));
    SHOAL_RETURN_IF_ERROR(Container::Open(directory_).status());
    SynthReport report;
    report.identity = manifest_.identity;
    SHOAL_ASSIGN_OR_RETURN(report.container_bytes, DirectoryBytes(directory_));
    SHOAL_RETURN_IF_ERROR(Advance("publish", 0));
    SHOAL_RETURN_IF_ERROR(staging_.Publish());
    return report;
  }

  absl::Status WriteTrunkFile() {
    SHOAL_RETURN_IF_ERROR(Advance("trunk", 0));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<TrunkFileWriter> writer,
                           TrunkFileWriter::Create(directory_, pool_));
    for (size_t i = 0; i < manifest_.trunk.size(); ++i) {
      const std::unique_ptr<TrunkRows> rows =
          weights_.Rows(draft_.tensors[i], static_cast<int64_t>(i), pool_);
      SHOAL_RETURN_IF_ERROR(writer->WriteTensor(manifest_.trunk[i], *rows));
      SHOAL_RETURN_IF_ERROR(Advance("trunk", manifest_.trunk[i].size_bytes));
    }
    SHOAL_ASSIGN_OR_RETURN(TrunkFileWriter::Written written, writer->Publish());
    for (size_t i = 0; i < manifest_.trunk.size(); ++i) {
      manifest_.trunk[i].crc32c = written.crcs[i];
    }
    manifest_.files.push_back(std::move(written.file));
    return absl::OkStatus();
  }

  absl::Status WriteLayer(int64_t layer) {
    const std::string step = absl::StrCat("layer ", layer, " experts");
    SHOAL_RETURN_IF_ERROR(Advance(step, 0));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<BankFileWriter> writer,
                           BankFileWriter::Create(directory_, layer));
    const UnitLayout& layout = manifest_.unit_layout;
    const int64_t num_experts = manifest_.config.moe.num_experts;
    const auto batch = std::clamp<int64_t>(static_cast<int64_t>(kBatchBytes / layout.record_bytes),
                                           1, num_experts);
    std::vector<std::byte> records;
    std::vector<Sha256Digest> digests;
    for (int64_t first = 0; first < num_experts; first += batch) {
      const int64_t count = std::min(batch, num_experts - first);
      records.assign(static_cast<size_t>(count) * layout.record_bytes, std::byte{0});
      digests.resize(static_cast<size_t>(count * layout.num_units));
      pool_.ParallelFor(count * layout.num_units, [&](int64_t task, int /*worker*/) {
        const int64_t expert = task / layout.num_units;
        const int64_t unit_index = task % layout.num_units;
        const auto unit =
            std::span(records).subspan(static_cast<uint64_t>(expert) * layout.record_bytes +
                                           static_cast<uint64_t>(unit_index) * layout.unit_bytes,
                                       layout.unit_bytes);
        weights_.WriteUnit(layout, {layer, first + expert}, unit_index, unit);
        digests[static_cast<size_t>(task)] = Sha256::Of(unit);
      });
      SHOAL_RETURN_IF_ERROR(writer->Append(records, digests));
      SHOAL_RETURN_IF_ERROR(Advance(step, records.size()));
    }
    SHOAL_ASSIGN_OR_RETURN(BankFileWriter::Written written, writer->Publish());
    manifest_.files.push_back(std::move(written.bank));
    manifest_.files.push_back(std::move(written.tree));
    // Nothing was lost: the codes are the weights.
    manifest_.banks.push_back({layer, std::move(written.tree_root), 0});
    return absl::OkStatus();
  }

  absl::Status WriteSmallFiles() {
    SHOAL_RETURN_IF_ERROR(Advance("small files", 0));
    std::vector<CopiedFile> files = draft_.model.files;
    files.push_back({std::string(kSourceTensorsFile), SourceText()});
    if (!draft_.codebooks.empty()) {
      files.push_back({std::string(kCodebooksFile), draft_.codebooks});
    }
    manifest_.files.reserve(manifest_.files.size() + files.size());
    for (const CopiedFile& file : files) {
      SHOAL_ASSIGN_OR_RETURN(FileEntry entry, WriteSmall(file.name, file.content));
      manifest_.files.push_back(std::move(entry));
    }
    return WriteManifestFiles(draft_.config_json(), manifest_,
                              [this](const std::string& name, absl::string_view content) {
                                return WriteSmall(name, content);
                              });
  }

  absl::StatusOr<FileEntry> WriteSmall(const std::string& name, absl::string_view content) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<StagedFile> file, StagedFile::Create(directory_, name));
    SHOAL_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(content.data(), content.size()))));
    return file->Publish();
  }

  // Tells the caller where the work is; CANCELLED where it was asked to stop.
  absl::Status Advance(const std::string& step, uint64_t bytes) {
    progress_.step = step;
    progress_.bytes_done += bytes;
    if (on_progress_) {
      on_progress_(progress_);
    }
    return stop_.stop_requested() ? absl::CancelledError("stopped; nothing was kept")
                                  : absl::OkStatus();
  }

  const Draft draft_;
  Manifest manifest_;
  const SynthOptions& options_;
  const SyntheticWeights weights_;
  StagingDirectory& staging_;
  const std::string directory_;  // of the container in the making
  const ProgressFunction& on_progress_;
  const std::stop_token stop_;
  ThreadPool pool_;
  SynthProgress progress_;
};

}  // namespace

absl::StatusOr<SynthReport> Synthesize(const std::string& directory, const SynthOptions& options,
                                       const ProgressFunction& on_progress, std::stop_token stop) {
  const std::string target = WithoutTrailingSlashes(directory);
  if (target.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", directory, "\" cannot be the directory of a container"));
  }
  SHOAL_ASSIGN_OR_RETURN(Draft draft, MakeDraft(options));
  const std::string identity = draft.manifest.identity;
  std::error_code error;
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    SHOAL_ASSIGN_OR_RETURN(SynthReport report, ReportExisting(target, identity));
    StagingDirectory::RemoveLeftOver(target, kStaging);
    return report;
  }
  SHOAL_ASSIGN_OR_RETURN(const auto staging, StagingDirectory::Acquire(target, kStaging));
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    // Another process has just finished it.
    return ReportExisting(target, identity);
  }
  return Synthesis(std::move(draft), options, *staging, on_progress, std::move(stop)).Run();
}

}  // namespace shoal

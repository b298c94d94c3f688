#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/container.h"
#include "common/container/staging_directory.h"
#include "common/status/status_macros.h"
#include "coordinator/convert/container_files.h"
#include "coordinator/convert/conversion.h"
#include "coordinator/convert/converter.h"
#include "coordinator/convert/ledger.h"
#include "coordinator/convert/source_model.h"
#include "coordinator/memory_plan.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr StagingNames kStaging = {"convert.ledger", "container", "a conversion"};

// How recorded settings differ from those asked for, in words; empty where they agree.
std::string SettingsDifference(const ConvertSettings& recorded, const ConvertOptions& options) {
  std::vector<std::string> parts;
  if (recorded.experts != options.experts) {
    parts.push_back(absl::StrCat("--experts ", ExpertCodecName(recorded.experts), " (now ",
                                 ExpertCodecName(options.experts), ")"));
  }
  if (options.trunk && recorded.trunk != *options.trunk) {
    parts.push_back(absl::StrCat("--trunk ", TrunkTypeName(recorded.trunk), " (now ",
                                 TrunkTypeName(*options.trunk), ")"));
  }
  if (recorded.seed != options.seed) {
    parts.push_back(absl::StrCat("--seed ", recorded.seed, " (now ", options.seed, ")"));
  }
  return absl::StrJoin(parts, ", ");
}

// The report on a container that is there already; ALREADY_EXISTS where it is not this conversion.
absl::StatusOr<ConvertReport> ReportExisting(const std::string& directory,
                                             const std::string& fingerprint,
                                             const ConvertOptions& options) {
  const auto container = Container::Open(directory);
  if (!container.ok()) {
    return absl::AlreadyExistsError(absl::StrCat(
        directory, " exists and is not a whole container (",
        std::string(container.status().message()), "); remove it or choose another directory"));
  }
  const Manifest& manifest = (*container)->manifest();
  const std::string difference = SettingsDifference(manifest.settings, options);
  if (manifest.source_fingerprint != fingerprint || !difference.empty()) {
    return absl::AlreadyExistsError(absl::StrCat(directory, " holds a container made ",
                                                 manifest.source_fingerprint != fingerprint
                                                     ? "from another checkpoint"
                                                     : absl::StrCat("with ", difference),
                                                 "; remove it or choose another directory"));
  }
  ConvertReport report;
  report.already_converted = true;
  report.identity = manifest.identity;
  report.trunk = manifest.settings.trunk;
  SHOAL_ASSIGN_OR_RETURN(report.container_bytes, DirectoryBytes(directory));
  for (const BankEntry& bank : manifest.banks) {
    report.layers.push_back({bank.layer, bank.relative_error});
  }
  return report;
}

// The settings to work with; FAILED_PRECONDITION where the ledger is that of another conversion.
absl::StatusOr<ConvertSettings> ResolveSettings(const StagingDirectory& staging,
                                                const Ledger& ledger, const Checkpoint& checkpoint,
                                                const SourceModel& source,
                                                const ConvertOptions& options) {
  if (!ledger.header()) {
    return ConvertSettings{options.experts,
                           options.trunk ? *options.trunk : RecommendedTrunk(source.config),
                           options.seed};
  }
  const LedgerHeader& header = *ledger.header();
  std::string difference = SettingsDifference(header.settings, options);
  if (header.source_fingerprint != checkpoint.fingerprint()) {
    difference = absl::StrCat("another checkpoint (fingerprint ", header.source_fingerprint,
                              ", now ", checkpoint.fingerprint(), ")");
  } else if (header.created_by != CreatedBy()) {
    difference = absl::StrCat("another version of this program (", header.created_by, ", now ",
                              CreatedBy(), ")");
  }
  if (!difference.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(staging.path(), " holds a conversion that was begun with ", difference,
                     "; go on with what it was begun with, or remove it to start again"));
  }
  return header.settings;
}

}  // namespace

TrunkType RecommendedTrunk(const ModelConfig& config) {
  constexpr uint64_t kMemoryShare = 4;
  uint64_t trunk_bytes = 0;
  for (const TrunkTensor& tensor : TrunkTensors(config)) {
    trunk_bytes += NumElements(tensor.shape);
  }
  return trunk_bytes <= TotalMemoryBytes() / kMemoryShare ? TrunkType::kQ8 : TrunkType::kQ4;
}

absl::StatusOr<ConvertReport> Convert(const std::string& checkpoint, const std::string& directory,
                                      const ConvertOptions& options,
                                      const ProgressFunction& on_progress, std::stop_token stop) {
  const std::string target = WithoutTrailingSlashes(directory);
  if (target.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", directory, "\" cannot be the directory of a container"));
  }
  SHOAL_ASSIGN_OR_RETURN(const auto source_files, Checkpoint::Open(checkpoint));
  SHOAL_ASSIGN_OR_RETURN(const SourceModel source, CheckSource(*source_files));

  std::error_code error;
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    SHOAL_ASSIGN_OR_RETURN(ConvertReport report,
                           ReportExisting(target, source_files->fingerprint(), options));
    StagingDirectory::RemoveLeftOver(target, kStaging);
    return report;
  }
  SHOAL_ASSIGN_OR_RETURN(const auto staging, StagingDirectory::Acquire(target, kStaging));
  if (fs::symlink_status(target, error).type() != fs::file_type::not_found) {
    // Another process has just finished it.
    return ReportExisting(target, source_files->fingerprint(), options);
  }
  SHOAL_ASSIGN_OR_RETURN(const auto ledger, Ledger::Open(staging->ledger_path()));
  SHOAL_ASSIGN_OR_RETURN(const ConvertSettings settings,
                         ResolveSettings(*staging, *ledger, *source_files, source, options));
  return Conversion(*source_files, source, settings, options.num_jobs, *staging, *ledger,
                    on_progress, std::move(stop))
      .Run();
}

}  // namespace shoal

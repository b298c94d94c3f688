// The work of one conversion, once it is known what is to be made and where (convert.cc).
#ifndef SHOAL_COORDINATOR_CONVERT_CONVERSION_H_
#define SHOAL_COORDINATOR_CONVERT_CONVERSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/manifest.h"
#include "common/container/staging_directory.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/converter.h"
#include "coordinator/convert/ledger.h"
#include "coordinator/convert/source_model.h"

namespace shoal {

using ProgressFunction = std::function<void(const ConvertProgress&)>;

// One object serves one Run, on one thread. What it is given outlives it.
class Conversion {
 public:
  Conversion(const Checkpoint& checkpoint, const SourceModel& source,
             const ConvertSettings& settings, int num_jobs, StagingDirectory& staging,
             Ledger& ledger, const ProgressFunction& on_progress, std::stop_token stop);

  // Goes on from the ledger to the published container. Errors as Convert's.
  absl::StatusOr<ConvertReport> Run();

 private:
  // Sizes of everything that will be written.
  absl::Status LayOut();
  std::vector<std::string> Folders() const;
  absl::Status CheckSpace();
  // Hashes what an earlier run finished; what is no longer as the ledger says is made again.
  absl::Status CheckKeptFiles();
  // Whether the file at `path` is the one recorded. A file that is not is noted and removed: its
  // space is needed.
  absl::StatusOr<bool> IsWhole(const FileEntry& recorded, const std::string& path);
  void Keep(uint64_t source_bytes, uint64_t file_bytes);

  absl::Status Work();
  absl::Status WriteTrunkFile();
  absl::Status WriteLayer(int64_t layer);
  // Everything that takes no time, made anew by every run: copies, source_tensors.txt, codebooks,
  // manifest and digests.
  absl::Status WriteSmallFiles();
  absl::Status WriteManifest(Manifest& manifest);
  absl::StatusOr<FileEntry> WriteSmall(const std::string& name, absl::string_view content);
  // The content of source_tensors.txt.
  absl::StatusOr<std::string> SourceTensorLines() const;
  // The content of codebooks.bin: those of all MoE layers in order.
  std::string CodebookBytes() const;
  size_t NumTrunkSources() const;

  absl::Status Advance(const std::string& step, uint64_t source_bytes);
  // Tells the caller where the work is; CANCELLED where it was asked to stop.
  absl::Status Report(const std::string& step);

  const Checkpoint& checkpoint_;
  const SourceModel& source_;
  const ConvertSettings settings_;
  StagingDirectory& staging_;
  Ledger& ledger_;
  const ProgressFunction& on_progress_;
  const std::stop_token stop_;
  ThreadPool pool_;
  const std::string directory_;  // of the container in the making

  UnitLayout layout_;
  std::vector<TrunkEntry> trunk_entries_;
  uint64_t container_bytes_ = 0;  // at most, of all files
  uint64_t finished_bytes_ = 0;   // of the files that the ledger has
  std::optional<LedgerTrunk> trunk_;
  std::map<int64_t, LedgerLayer> layers_;
  ConvertProgress progress_;
  ConvertReport report_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_CONVERSION_H_

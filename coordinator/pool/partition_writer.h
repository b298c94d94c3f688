// Writes one node's partition: what Shard does once it is known what is to be made and where.
#ifndef SHOAL_COORDINATOR_POOL_PARTITION_WRITER_H_
#define SHOAL_COORDINATOR_POOL_PARTITION_WRITER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/container.h"
#include "common/container/partition_index.h"
#include "common/container/staging_directory.h"
#include "coordinator/pool/shard.h"

namespace shoal {

inline constexpr StagingNames kShardStaging = {"shard.ledger", "partition", "a partition"};

// One object serves one Run, on one thread. What it is given outlives it.
class PartitionWriter {
 public:
  // `wanted` has name, identity and slices; its files are left to the writer. `node` gets the
  // counts. `progress` is added to and handed to `on_progress`.
  PartitionWriter(const Container& container, const PartitionIndex& wanted,
                  StagingDirectory& staging, ShardedNode& node, ShardProgress& progress,
                  const std::function<void(const ShardProgress&)>& on_progress,
                  std::stop_token stop);

  absl::Status Run();

 private:
  absl::Status Begin();
  absl::Status WriteLayer(const BankEntry& bank);
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

  const Container& container_;
  const Manifest& manifest_;
  PartitionIndex index_;
  StagingDirectory& staging_;
  ShardedNode& node_;
  ShardProgress& progress_;
  const std::function<void(const ShardProgress&)>& on_progress_;
  const std::stop_token stop_;
  const std::string directory_;  // of the partition in the making
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_PARTITION_WRITER_H_

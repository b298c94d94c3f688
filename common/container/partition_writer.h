// Writes the partition of one node, wherever its content comes from: the one writer of partitions.
#ifndef SHOAL_COMMON_CONTAINER_PARTITION_WRITER_H_
#define SHOAL_COMMON_CONTAINER_PARTITION_WRITER_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/container/partition_index.h"
#include "common/container/partition_source.h"
#include "common/container/staging_directory.h"

namespace shoal {

inline constexpr StagingNames kPartitionStaging = {"shard.ledger", "partition", "a partition"};

struct PartitionProgress {
  std::string step;         // "node alpha: layer 3"
  uint64_t bytes_done = 0;  // of banks
  uint64_t bytes_total = 0;
  uint64_t bytes_kept = 0;  // of done: found as an earlier run had left them
};
using OnPartitionProgress = std::function<void(const PartitionProgress&)>;

struct WrittenPartition {
  uint64_t partition_bytes = 0;  // of all files that partition.json lists
  int64_t banks_copied = 0;      // by this run
  int64_t banks_kept = 0;        // of an earlier run, checked
  // Files of an earlier run that were not as it had left them; made again.
  std::vector<std::string> remade_files;
};

struct PartitionNeed {
  uint64_t bank_bytes = 0;     // what progress is counted in
  uint64_t missing_bytes = 0;  // of disk, given what an earlier run left in `target`.partial
};

// `slices` are inside the model and disjoint, `manifest_bytes` is the size of manifest.json.
PartitionNeed NeedOfPartition(const Manifest& manifest, uint64_t manifest_bytes,
                              std::span<const ExpertSlice> slices, const std::string& target);

// Writes into `staging` the partition of `wanted`, which has name, identity and sorted slices (its
// files are left to the writer), and publishes it. Banks that an earlier run finished are read,
// checked and kept, so that a run that was killed at any moment can be gone on from; the bytes are
// the same for every source and however often it was interrupted. `progress`, whose total is the
// caller's, is added to and handed to `on_progress` (which may be empty) once an expert.
//   CANCELLED            `stop` came; what is finished is kept
//   FAILED_PRECONDITION  `staging` holds another partition's work
//   RESOURCE_EXHAUSTED   the disk is full; names the file
//   and the source's errors
absl::Status WritePartition(PartitionSource& source, const PartitionIndex& wanted,
                            StagingDirectory& staging, WrittenPartition& written,
                            PartitionProgress& progress, const OnPartitionProgress& on_progress,
                            std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_PARTITION_WRITER_H_

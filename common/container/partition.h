// An opened partition: the directory of one node, which holds slices of a container's experts and
// what is needed to check and compute them, and no trunk.
#ifndef SHOAL_COMMON_CONTAINER_PARTITION_H_
#define SHOAL_COMMON_CONTAINER_PARTITION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/container/partition_index.h"
#include "kernels/rvq.h"

namespace shoal {

// Thread-safe after Open (immutable).
class Partition {
 public:
  // Reads SHA256SUMS, partition.json, manifest.json and config.json, and checks each against the
  // others; that every file exists with the size that follows from manifest and slices; and the
  // digests of all files but the banks. Loads nothing large.
  //   NOT_FOUND           the directory or a file is missing (a directory without partition.json:
  //                       says to run `shoal shard`)
  //   DATA_LOSS           a size or digest differs; names the file
  //   RESOURCE_EXHAUSTED  a text has more bytes than Container::Open accepts
  //   and the errors of OpenForRead, ParsePartition, ParseManifest and CheckPartition
  static absl::StatusOr<std::unique_ptr<Partition>> Open(const std::string& directory);

  const std::string& directory() const { return directory_; }
  // Of the whole container: what it says of trunk and banks is not here.
  const Manifest& manifest() const { return manifest_; }
  const ModelConfig& config() const { return manifest_.config; }
  const PartitionIndex& index() const { return index_; }
  // Of the node it was made for.
  const std::string& name() const { return index_.name; }
  // Disjoint, by first expert, then first unit; at least one.
  const std::vector<ExpertSlice>& slices() const { return index_.slices; }
  // All but partition.json and SHA256SUMS.
  const std::vector<FileEntry>& files() const { return index_.files; }
  std::string PathOf(absl::string_view file) const;

  // As Container::ReadCodebooks.
  absl::StatusOr<std::vector<LayerCodebooks>> ReadCodebooks() const;

  // The bank of slices()[slice_index] for an MoE layer: for each expert of the slice in order one
  // record of RecordBytes(slice_index), which is the slice's units and zeros up to a multiple of
  // kRecordAlignment.
  std::string BankPath(size_t slice_index, int64_t layer) const;
  uint64_t RecordBytes(size_t slice_index) const;
  uint64_t BankBytes(size_t slice_index) const;

 private:
  Partition() = default;
  absl::Status LoadFiles(const std::string& sums);

  std::string directory_;
  Manifest manifest_;
  PartitionIndex index_;
};

// Whether a directory has a partition.json, so that it is to be opened as a partition.
bool HoldsPartition(const std::string& directory);
// Whether it has slices, as only partitions do, and no partition.json.
bool LacksPartitionFile(const std::string& directory);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_PARTITION_H_

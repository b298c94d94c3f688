// partition.json: what the partition of one node says about itself. docs/format.md describes the
// fields.
#ifndef SHOAL_COMMON_CONTAINER_PARTITION_INDEX_H_
#define SHOAL_COMMON_CONTAINER_PARTITION_INDEX_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"

namespace shoal {

inline constexpr int kPartitionVersion = 1;
inline constexpr absl::string_view kPartitionFile = "partition.json";

// "slices/units-0000-0004.experts-0000-0064", and the bank of a layer in it.
std::string SliceFolder(const ExpertSlice& slice);
std::string SliceBankFile(const ExpertSlice& slice, int64_t layer);

struct PartitionIndex {
  std::string name;                 // of the node
  std::string identity;             // of the container it is a part of
  std::vector<ExpertSlice> slices;  // by first expert, then first unit
  std::vector<FileEntry> files;     // all but partition.json and SHA256SUMS, by path
};

// A slice list in the order that partition.json has.
std::vector<ExpertSlice> SortedSlices(std::span<const ExpertSlice> slices);

std::string SerializePartition(const PartitionIndex& index);

// Checks types, names and digests alone; sizes and slices mean nothing before CheckPartition.
// `name` is the file's path, for messages.
//   UNIMPLEMENTED      a version this build does not have, named
//   INVALID_ARGUMENT   malformed; names the field
absl::StatusOr<PartitionIndex> ParsePartition(absl::string_view text, absl::string_view name);

// The files of a partition with these slices, by path: sizes follow from the manifest, and so do
// digests, which are empty where the manifest has none (the slices' banks; manifest.json, whose
// size is 0 here).
std::vector<FileEntry> PartitionFiles(const Manifest& manifest,
                                      std::span<const ExpertSlice> slices);

// Checks a parsed partition.json against the manifest that lies beside it: identity, slices inside
// the model, disjoint and in order, exactly the files of PartitionFiles with their sizes and
// digests.
//   INVALID_ARGUMENT  a slice is outside the model, or two overlap
//   DATA_LOSS         everything else
absl::Status CheckPartition(const PartitionIndex& index, const Manifest& manifest,
                            absl::string_view name);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_PARTITION_INDEX_H_

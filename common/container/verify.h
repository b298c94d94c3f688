// Checks of every byte of a container or a partition, and what they report.
#ifndef SHOAL_COMMON_CONTAINER_VERIFY_H_
#define SHOAL_COMMON_CONTAINER_VERIFY_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace shoal {

// What a check reports as it goes.
struct VerifyProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  std::string file;
};

// Both return one line for each problem found (empty: all is whole). `progress` is called at least
// once a file, every 64 MiB and at the end; what is checked twice is read twice, and bytes_total
// counts both times.
//   CANCELLED  `stop` came first; it is looked at after every unit and 8 MiB
//   and Container::Open's or Partition::Open's errors but DATA_LOSS, which is a problem found

// SHA-256 of every file, CRC of every trunk tensor and unit, unit digests against the trees, trees
// against the manifest, SHA256SUMS against the manifest, files that do not belong.
absl::StatusOr<std::vector<std::string>> VerifyContainer(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop = {});

// SHA-256 of every file, CRC of every unit, unit digests against the trees, trees against the
// manifest, SHA256SUMS against partition.json, padding, files that do not belong.
absl::StatusOr<std::vector<std::string>> VerifyPartition(
    const std::string& directory, const std::function<void(const VerifyProgress&)>& progress,
    std::stop_token stop = {});

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_VERIFY_H_

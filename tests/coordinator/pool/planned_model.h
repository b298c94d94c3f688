// The numbers of a model and of machines, for tests of plans; nothing of it is on a disk.
#ifndef SHOAL_TESTS_COORDINATOR_POOL_PLANNED_MODEL_H_
#define SHOAL_TESTS_COORDINATOR_POOL_PLANNED_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/manifest.h"
#include "coordinator/pool/pool_forecast.h"

namespace shoal::testing {

inline constexpr double kNever = 1e15;  // bytes a second that limit nothing
inline constexpr int64_t kLayers = 10;
inline constexpr int64_t kExperts = 256;
inline constexpr uint64_t kUnitBytes = 4096;
// 8 chosen experts.
inline constexpr double kBytesPerUnit = 8 * 4096;
// config.json of 100 bytes, ten trees of 7.
inline constexpr uint64_t kSmallFiles = 170;

// 256 experts of `num_units` units, of which a token chooses 8, in 10 layers.
inline Manifest TestManifest(int64_t num_units = 8, uint64_t unit_bytes = kUnitBytes) {
  Manifest manifest;
  manifest.identity = std::string(64, 'a');
  manifest.config.hidden_size = 1000;
  manifest.config.moe.num_experts = kExperts;
  manifest.config.moe.num_experts_per_token = 8;
  manifest.unit_layout.num_units = num_units;
  manifest.unit_layout.unit_bytes = unit_bytes;
  manifest.unit_layout.record_bytes =
      AlignUp(static_cast<uint64_t>(num_units) * unit_bytes, kRecordAlignment);
  manifest.files.push_back({std::string(kConfigFile), 100, ""});
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    manifest.banks.push_back({layer, "", 0});
    manifest.files.push_back({BankTreeFile(layer), 7, ""});
  }
  return manifest;
}

inline NodeRates DiskNode(const std::string& name, double read_bytes_per_second) {
  NodeRates node;
  node.name = name;
  node.read_bytes_per_second = read_bytes_per_second;
  node.compute_bytes_per_second = kNever;
  node.free_disk_bytes = uint64_t{1} << 60;
  return node;
}

inline std::vector<NodeRates> DiskNodes(const std::vector<double>& rates) {
  std::vector<NodeRates> nodes;
  nodes.reserve(rates.size());
  for (const double rate : rates) {
    nodes.push_back(DiskNode(absl::StrCat("n", rate, "-", nodes.size()), rate));
  }
  return nodes;
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_POOL_PLANNED_MODEL_H_

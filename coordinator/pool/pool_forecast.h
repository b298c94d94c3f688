// How fast a pool decodes, from bytes and measured rates alone. No I/O.
#ifndef SHOAL_COORDINATOR_POOL_POOL_FORECAST_H_
#define SHOAL_COORDINATOR_POOL_POOL_FORECAST_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"

namespace shoal {

// A machine as it was measured, or as the user says it is. Rates in bytes a second.
struct NodeRates {
  std::string name;
  std::string address;                  // may be empty; kOwnAddress: the coordinator itself
  double read_bytes_per_second = 0;     // random direct reads of records
  double compute_bytes_per_second = 0;  // records that its kernels apply to one row
  bool compute_assumed = false;         // not measured: the node is empty
  double link_bytes_per_second = 0;     // between it and the coordinator; 0: unknown, not counted
  absl::Duration round_trip;
  uint64_t free_disk_bytes = 0;
  uint64_t cache_bytes = 0;        // memory for records; 0: everything is read
  std::vector<ExpertSlice> holds;  // on its disk already, of this container
};

struct ForecastOptions {
  double hit_rate = 0;             // share of expert records found in memory, [0, 1], on every node
  absl::Duration trunk_time = {};  // of the coordinator, for each token; zero: not counted
};

// What one layer of one token costs one node, in seconds; means where experts are dealt out whole.
struct NodeTimes {
  double read = 0;
  double compute = 0;
  double network = 0;  // request, reply and round trip
  // Reading and computing overlap.
  double total() const { return std::max(read, compute) + network; }
};

// A machine in ExpectedSlowest.
struct ExpertLoad {
  int64_t experts = 0;            // of the layer's, that it computes a part of
  double seconds_per_expert = 0;  // for each of them that is chosen
  double fixed_seconds = 0;       // once where any is
};

// The mean, in seconds, of the time of the slowest machine where `chosen` of a layer's
// `num_experts` are drawn at random without replacement. A machine with all experts computes a part
// of each that is chosen; the others' experts are disjoint. Exact but for rounding. At most a few
// dozen machines: every distinct time of every machine is looked at.
double ExpectedSlowest(std::span<const ExpertLoad> loads, int64_t num_experts, int64_t chosen);

// Predicts for one model. `manifest` has MoE layers and outlives it. Thread-safe.
class PoolForecast {
 public:
  PoolForecast(const Manifest& manifest, const ForecastOptions& options)
      : manifest_(manifest), options_(options) {}

  // `slices`, one or more, are parts of all experts, or whole experts.
  NodeTimes TimesOf(const NodeRates& node, std::span<const ExpertSlice> slices) const;
  // The time of a layer: that of the slowest node. nodes.size() == work.size(); a node with an
  // empty list does nothing.
  double LayerSeconds(std::span<const NodeRates> nodes,
                      std::span<const std::vector<ExpertSlice>> work) const;
  double TokensPerSecond(double layer_seconds) const;
  // Bytes of one expert in all units that the node gets through in a second with reads and kernels,
  // where it computes `share` of all bytes.
  double RateOf(const NodeRates& node, double share) const;
  // Of a message to a node and its reply, for one row.
  uint64_t MessageBytes() const;

 private:
  struct Cost {
    int64_t experts = 0;
    double bytes_per_expert = 0;
  };
  Cost CostOf(std::span<const ExpertSlice> slices) const;
  double HitRate(const NodeRates& node, double computed_bytes) const;

  const Manifest& manifest_;
  const ForecastOptions options_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_FORECAST_H_

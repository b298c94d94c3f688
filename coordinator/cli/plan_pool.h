// The part of `shoal plan` that plans a pool.
#ifndef SHOAL_COORDINATOR_CLI_PLAN_POOL_H_
#define SHOAL_COORDINATOR_CLI_PLAN_POOL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/manifest.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/placement_report.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/pool/placement.h"
#include "coordinator/pool/replan.h"

namespace shoal {

struct PlanPoolFlags {
  std::optional<std::string> nodes;
  std::optional<int64_t> copies;
  std::optional<std::string> placement;
  std::optional<std::string> out;
  std::optional<std::string> keep;
  bool replace = false;
  double hit_rate = 0;
  double trunk_ms = 0;
  bool explain = false;
  ProtectionFlags protection;
  bool own = false;  // the coordinator computes too

  void Add(FlagSet& flags);
  // A usage error where a flag is given that --nodes alone has a use for, or has no sense.
  absl::Status Check() const;
  // Reads or asks for the rates, prints what is proposed, and writes the plan where --out is given.
  absl::Status Run(const Container& container, Console& console) const;

 private:
  absl::StatusOr<std::vector<NodeRates>> Rates(const Container& container, Console& console) const;
  std::optional<Placement> WantedPlacement() const;
  absl::StatusOr<PoolProposals> Propose(const Manifest& manifest,
                                        const std::vector<NodeRates>& nodes,
                                        const PlacementOptions& options) const;
  absl::StatusOr<Replan> ProposeKeeping(const Manifest& manifest,
                                        const std::vector<NodeRates>& nodes,
                                        const ForecastOptions& forecast) const;
  absl::Status Report(const PlacementReport& report, Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_PLAN_POOL_H_

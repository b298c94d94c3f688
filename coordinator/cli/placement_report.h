// A proposal for a pool, for people and as JSON.
#ifndef SHOAL_COORDINATOR_CLI_PLACEMENT_REPORT_H_
#define SHOAL_COORDINATOR_CLI_PLACEMENT_REPORT_H_

#include <span>
#include <string>

#include "common/container/manifest.h"
#include "coordinator/cli/console.h"
#include "coordinator/pool/placement.h"
#include "coordinator/pool/replan.h"

namespace shoal {

// What a report is about. Everything outlives it.
struct PlacementReport {
  const Manifest& manifest;
  std::span<const NodeRates> nodes;  // as they were given to the planner
  const PlacementOptions& options;
  const PoolProposals& proposals;
  const Replan* replan;  // null where the pool is placed anew; its proposal is the best
};

// The table, predictions and warnings of the best proposal, and a line about the other.
std::string FormatPlacement(const PlacementReport& report);
// How the numbers came about.
std::string ExplainPlacement(const PlacementReport& report);
Json PlacementJson(const PlacementReport& report);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_PLACEMENT_REPORT_H_

// The next plan of a pool that machines join or leave, while those that are filled keep what they
// store and fetch nothing. Pure arithmetic: nothing is asked, opened or copied.
#ifndef SHOAL_COORDINATOR_POOL_REPLAN_H_
#define SHOAL_COORDINATOR_POOL_REPLAN_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "coordinator/pool/placement.h"

namespace shoal {

struct ReplanOptions {
  // 2: fails where something would be stored once. Absent: as many as the plan that is kept has, or
  // as many as remain of them.
  std::optional<int64_t> copies = {};
  std::optional<Placement> placement = {};  // absent: the one that the plan has
  bool replace = false;  // what only machines that are gone store, new ones fetch again
  ForecastOptions forecast = {};
};

// What nodes would have to fetch for a plan.
struct Move {
  uint64_t bytes = 0;   // records
  double fraction = 0;  // of all expert records of the model
};

// A pool that is placed anew with the same machines, which is what keeping is compared with.
struct PlacedAnew {
  double tokens_per_second = 0;
  Move move;  // a node that lacks anything is filled anew, all of it
};

struct Replan {
  PoolProposal proposal;  // its plan has the next epoch, the kept nodes' order, then new ones
  int64_t copies = 1;     // that every unit of every expert has, at least
  std::vector<std::string>
      added;  // names of nodes that compute or store something for the first time
  std::vector<std::string> gone;         // of nodes of the old plan
  std::vector<ExpertSlice> stored_once;  // where the old plan had two copies of everything
  Move move;
  std::optional<PlacedAnew> anew;  // absent where that is impossible
};

// A plan for `nodes`, measured or as the user says, that goes on from `kept`. Nodes are the same
// where their names are; what a node stores is what `kept` gives it and what it holds by its own
// word, if it was asked. Shares are found as coordinator/pool/kept_shares.h says. An address of
// `nodes` replaces the one in `kept` unless it is empty.
//   INVALID_ARGUMENT     `kept` or rates make no sense (CheckPlan, CheckRates); or kept has another
//                        placement than is asked for
//   FAILED_PRECONDITION  `kept` is for another container; it mixes placements; a node lacks what it
//                        gives it; or something is stored by nobody (without `replace` and a new
//                        node) or, with copies 2, once: names what
//   RESOURCE_EXHAUSTED   a new node has less disk than it needs
absl::StatusOr<Replan> ReplanPool(const Manifest& manifest, std::span<const NodeRates> nodes,
                                  const PoolPlan& kept, const ReplanOptions& options);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_REPLAN_H_

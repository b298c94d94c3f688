// Fills the empty nodes of a plan, several at the same time.
#ifndef SHOAL_COORDINATOR_POOL_POOL_FILLER_H_
#define SHOAL_COORDINATOR_POOL_POOL_FILLER_H_

#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/container/partition_writer.h"
#include "coordinator/pool/node_filler.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// A node of a plan, what was found there and what became of it.
struct FillingNode {
  std::string name;
  std::string address;
  std::vector<ExpertSlice> wanted;   // what the plan has it store
  bool asked_for = true;             // else it is a source at most
  bool is_empty = false;             // and asked for: to be filled
  std::vector<ExpertSlice> held;     // by its own word; of one that is filled now, what it got
  std::vector<std::string> sources;  // that it is told to ask
  SecurityPtr own;                   // as ChannelSecurity's
  PartitionProgress progress;        // the last that it told
  absl::Duration time;               // that its filling took
};

// Asks every node of `plan`, which is one for `manifest`, what it holds, but not the coordinator; only `only_node`, if there
// is one, is asked for. A node that is not asked for may be silent.
//   NOT_FOUND            the plan has no node of that name
//   FAILED_PRECONDITION  a node has another name or holds something else than the plan gives it
//   INVALID_ARGUMENT     it has no address
//   and AskHoldings' errors
absl::StatusOr<std::vector<FillingNode>> LookAtNodes(const Manifest& manifest, const PoolPlan& plan,
                                                     const std::optional<std::string>& only_node,
                                                     const SecurityPtr& own);

// IP:PORT for `address`, as nodes take it. Absent where it is a host's name.
std::optional<std::string> NumericAddress(const std::string& address);

// Gives every empty node its sources: `from` where there are any; else the nodes that hold
// something, then `lender` (IP:PORT, which may be empty). What listens on loopback is no source for
// a node on another machine. The name of a node that is left without any; absent where none is.
std::optional<std::string> ChooseSources(const std::vector<std::string>& from,
                                         const std::string& lender, std::span<FillingNode> nodes);

// Fills every empty node, `at_once` (positive) at the same time, as FillNode does: not more than their
// sources serve, because one that finds all of them busy gives up in the end. `on_progress` gets the
// sum over all of them; it is called by several threads, one at a time. Where a node cannot be
// filled the others still are, and its error is returned, with those of others.
//   CANCELLED  `stop` came; the nodes keep what is finished
//   and FillNode's errors
absl::Status FillNodes(const LentModel& model, std::span<FillingNode> nodes, int at_once,
                       const OnPartitionProgress& on_progress, const std::stop_token& stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_FILLER_H_

// The experts of a pool of machines behind the interface of one: requests go to the nodes that hold
// a cell, sums are added as integers, and a node that fails is replaced by another holder of the
// same cells (docs/design.md, "The pool").
#ifndef SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_
#define SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/sync/clock.h"
#include "coordinator/pool/node_health.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/expert_backend.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

class PoolLayout;

struct PoolOptions {
  // The nodes. Without an identity it is a mere list of addresses: names may be empty, and what
  // nodes hold they say themselves. With one it is checked by CheckPlan.
  PoolPlan plan;
  // Nodes that a later plan may have; 0: as many as this one.
  int max_nodes = 0;
  // How long all nodes together may take to answer at first.
  absl::Duration connect_wait = absl::Seconds(10);
  // How much of that the others get once those that have answered hold everything. Who is well
  // answers at once, and a node of a plan can still come later.
  absl::Duration grace_wait = absl::Seconds(3);
  // How long a call waits for a cell that nobody can compute before it ends with UNAVAILABLE.
  absl::Duration node_wait = absl::Seconds(60);
  // Share of the nodes' answers that are computed a second time by somebody else, 0 to 1. A node that
  // is found wrong is not asked any more.
  double audit_share = 0;
  // In which all calls are to be computed.
  ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
  // Told what an audit finds, and which nodes are lost and there again, by any thread; may be empty.
  std::function<void(absl::string_view line)> log = {};
  // As ChannelSecurity's. With it a node whose name the plan has must have it in its certificate.
  SecurityPtr own = {};
};

// What a node did in all and what became of the time. Costs are the node's own word.
struct NodeWork {
  absl::Duration round_trip;  // from sending requests to their replies
  absl::Duration execute;     // of it, computing, the wait for its disk included
  absl::Duration disk_wait;   // of that, with nothing to compute
  absl::Duration queue;       // of the round trip, before the work began
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  uint64_t expert_bytes = 0;  // read from its disk
};

// What a node is doing, for people.
struct PoolNodeStatus {
  std::string name;
  std::string address;
  NodeState state = NodeState::kLost;
  std::string last_error;              // of the last stream that ended; empty where none did
  std::vector<ExpertSlice> slices;     // stored, by its own word
  std::vector<ExpertSlice> computes;   // while every node is well; empty without a plan
  uint64_t read_bytes_per_second = 0;  // of its disk, as it measured at its start; 0: it did not
  NodeWork work;
  absl::Duration layer_p50;  // round trip of the last 200 layers of one row; zero before the first
  absl::Duration layer_p95;
  int64_t requests = 0;  // answered
  int64_t hedges = 0;    // given to another holder because this one was late
  int64_t failures = 0;  // answered with an error, like that of a damaged record
  int64_t losses = 0;    // streams that ended
  int64_t audits = 0;    // answers that somebody else computed too
  std::string evidence;  // why it is in quarantine; empty where it is not
};

// Thread-safe. Results are bit-identical to a LocalExpertBackend's over the same container,
// whatever happens to the nodes.
class PoolBackend final : public ExpertBackend {
 public:
  // Connects to every node, compares terms and holdings, and cuts the experts into cells.
  // `local`, which may be null, holds all experts and computes what the plan gives the coordinator
  // and what no live node can. `manifest`
  // (of the whole container) and `clock` outlive the backend.
  //   INVALID_ARGUMENT     an address is missing or given twice, two nodes have one name, or what
  //                        they hold crosses so that there are too many cells
  //   FAILED_PRECONDITION  a node has other terms (names the field and both values), is empty, or
  //                        lacks what the plan says it holds; the plan has the coordinator
  //                        compute, and there is no `local`; or there is to be an audit, and a
  //                        node alone holds a slice (names both)
  //   UNAVAILABLE          nodes did not answer and units are left that nobody holds; names both
  //   and CheckPlan's errors
  static absl::StatusOr<std::unique_ptr<PoolBackend>> Open(const Manifest& manifest,
                                                           PoolOptions options,
                                                           std::unique_ptr<ExpertBackend> local,
                                                           const Clock& clock);
  ~PoolBackend() override;

  // As ExpertBackend's; rows are sent to nodes in pieces that they take.
  //   INVALID_ARGUMENT  also where the batch has another arithmetic than PoolOptions
  //   UNAVAILABLE  nobody could compute a cell for node_wait, its only holder lives and did not in
  //                that time and ten of its deadlines, or all its holders are in quarantine; names
  //                the holders and the slice
  //   DATA_LOSS    the record of a node is damaged and no other holder is left; names the node
  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override;

  // How many audits found somebody.
  uint64_t Retractions() const override;

  // Of all nodes and `local` together. wait_time is the time that calls waited for replies,
  // compute_time that of `local`.
  std::vector<ExpertLayerStats> Stats() const override;

  std::vector<PoolNodeStatus> Nodes() const;
  // The plan in force.
  PoolPlan plan() const;

  // Goes over to another plan of the same container. The old one serves until every node of the new
  // one has answered and holds what the plan gives it; then the next layer goes by the new one, and
  // calls under way end by the old while they can go on by it. Counters of nodes begin again; a
  // node that is drained stays so. One at a time.
  //   INVALID_ARGUMENT     the epoch is not above the one in force, or as Open
  //   FAILED_PRECONDITION  the plan has no identity, or more than max_nodes nodes; a node is empty
  //                        or lacks what it should hold, or does not answer within connect_wait;
  //                        another change is under way
  //   CANCELLED            `stop`
  absl::Status ChangePlan(PoolPlan plan, const std::stop_token& stop);

  // Leaves a node alone, or no longer: it is asked only for what nobody else can do. Returns when
  // it has nothing more to do, `wait` at most.
  //   NOT_FOUND            there is no such node; names those there are
  //   FAILED_PRECONDITION  nobody else who answers holds some of its slices
  //   DEADLINE_EXCEEDED    it still computes; it stays drained, as it does after CANCELLED (`stop`)
  absl::Status DrainNode(const std::string& name, absl::Duration wait, const std::stop_token& stop);
  absl::Status UndrainNode(const std::string& name);

 private:
  struct Impl;
  explicit PoolBackend(std::unique_ptr<Impl> impl);
  absl::StatusOr<std::shared_ptr<PoolLayout>> LayoutWith(const std::string& node_name) const;
  // In the plan in force; returns it.
  absl::StatusOr<std::shared_ptr<PoolLayout>> SetDrained(const std::string& name, bool drained);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_

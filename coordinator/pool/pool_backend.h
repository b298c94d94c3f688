// The experts of a pool of machines behind the interface of one: requests go to the nodes that hold
// a cell, sums are added as integers, and a node that fails is replaced by another holder of the
// same cells (docs/design.md, "The pool").
#ifndef SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_
#define SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_

#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/sync/clock.h"
#include "coordinator/pool/node_health.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/expert_backend.h"

namespace shoal {

struct PoolOptions {
  // The nodes. Without an identity it is a mere list of addresses: names may be empty, and what
  // nodes hold they say themselves. With one it is checked by CheckPlan.
  PoolPlan plan;
  // How long all nodes together may take to answer at first.
  absl::Duration connect_wait = absl::Seconds(10);
  // How long a call waits for a cell that nobody can compute before it ends with UNAVAILABLE.
  absl::Duration node_wait = absl::Seconds(60);
};

// What a node is doing, for people.
struct PoolNodeStatus {
  std::string name;
  std::string address;
  NodeState state = NodeState::kLost;
  std::string last_error;  // of the last stream that ended; empty where none did
  std::vector<ExpertSlice> slices;
  int64_t requests = 0;  // answered
  int64_t hedges = 0;    // given to another holder because this one was late
  int64_t losses = 0;    // streams that ended
};

// Thread-safe. Results are bit-identical to a LocalExpertBackend's over the same container,
// whatever happens to the nodes.
class PoolBackend final : public ExpertBackend {
 public:
  // Connects to every node, compares terms and holdings, and cuts the experts into cells.
  // `local`, which may be null, holds all experts and computes what no live node can. `manifest`
  // (of the whole container) and `clock` outlive the backend.
  //   INVALID_ARGUMENT     an address is missing or given twice, two nodes have one name, or what
  //                        they hold crosses so that there are too many cells
  //   FAILED_PRECONDITION  a node has other terms (names the field and both values), is empty, or
  //                        lacks what the plan says it holds
  //   UNAVAILABLE          nodes did not answer and units are left that nobody holds; names both
  //   and CheckPlan's errors
  static absl::StatusOr<std::unique_ptr<PoolBackend>> Open(const Manifest& manifest,
                                                           PoolOptions options,
                                                           std::unique_ptr<ExpertBackend> local,
                                                           const Clock& clock);
  ~PoolBackend() override;

  // As ExpertBackend's; rows are sent to nodes in pieces that they take.
  //   UNAVAILABLE  nobody could compute a cell for node_wait; names its holders and the slice
  //   DATA_LOSS    the record of a node is damaged and no other holder is left; names the node
  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override;

  // Of all nodes and `local` together. wait_time is the time that calls waited for replies,
  // compute_time that of `local`.
  std::vector<ExpertLayerStats> Stats() const override;

  std::vector<PoolNodeStatus> Nodes() const;

 private:
  struct Impl;
  explicit PoolBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_BACKEND_H_

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
#include "expert_node/expert_backend.h"

namespace shoal {

// A machine of the pool, as the user named it.
struct PoolMember {
  std::string name;     // empty: whatever the node says
  std::string address;  // host:port
  // What the plan has it compute, and store beside that. Both empty where there is no plan.
  std::vector<ExpertSlice> computes = {};
  std::vector<ExpertSlice> copies = {};
};

struct PoolOptions {
  std::vector<PoolMember> members;
  uint64_t epoch = 1;    // of the plan
  std::string identity;  // of the container the plan is for; empty without a plan
  // How long all members together may take to answer at first.
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
  // Connects to every member, compares terms and holdings, and cuts the experts into cells.
  // `local`, which may be null, holds all experts and computes what no live node can. `manifest`
  // (of the whole container) and `clock` outlive the backend.
  //   INVALID_ARGUMENT     a member is unnamed twice, or two nodes have one name; the plan does not
  //                        fit the model
  //   FAILED_PRECONDITION  a node has other terms (names the field and both values), is empty, or
  //                        lacks what the plan says it holds
  //   UNAVAILABLE          members did not answer and units are left that nobody holds; names both
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

// The plan of a pool: which node computes and stores which slices of the experts. As a file it is
// also what tells a coordinator where its nodes are. docs/format.md describes the fields.
#ifndef SHOAL_COORDINATOR_POOL_POOL_PLAN_H_
#define SHOAL_COORDINATOR_POOL_POOL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"

namespace shoal {

inline constexpr int kPoolPlanVersion = 1;

// In place of a node's address: the coordinator itself, which computes these slices out of the
// container that it holds, while it waits for the others.
inline constexpr absl::string_view kOwnAddress = "coordinator";

struct PoolNode {
  std::string name;     // as CheckNodeName wants it
  std::string address;  // host:port, [IPv6]:port, kOwnAddress; empty where the node is nowhere yet
  std::vector<ExpertSlice> slices = {};  // what it computes while every node lives
  std::vector<ExpertSlice> copies =
      {};  // what it stores beside, to compute when another node is lost

  // Slices, then copies.
  std::vector<ExpertSlice> stored() const;
  bool is_coordinator() const { return address == kOwnAddress; }
};

struct PoolPlan {
  std::string identity;  // of the container
  uint64_t epoch = 1;    // from 1; a later plan of the same pool has a larger one
  std::vector<PoolNode> nodes;

  // What the coordinator computes itself while every node is well; null where it computes nothing.
  const PoolNode* coordinator() const;
  // The nodes that are other processes, in order.
  std::vector<PoolNode> remote() const;
};

// For a plan that takes the place of this one. FAILED_PRECONDITION where there is no larger one.
absl::StatusOr<uint64_t> NextEpoch(const PoolPlan& plan);

std::string SerializePlan(const PoolPlan& plan);

// Parses and checks what can be checked without the model: names and addresses, each given once,
// digests and ranges, and that the coordinator has no copies: it has everything. `name` is the file's path, for messages.
//   UNIMPLEMENTED      a version this build does not have, named
//   INVALID_ARGUMENT   malformed; names the field
absl::StatusOr<PoolPlan> ParsePlan(absl::string_view text, absl::string_view name);

// ParsePlan of a file of at most 16 MiB, and what reading it can fail with.
absl::StatusOr<PoolPlan> ReadPlan(const std::string& path);
// Writes it so that a kill at any moment leaves the old file or the new.
absl::Status WritePlan(const PoolPlan& plan, const std::string& path);

// Checks a plan, parsed or put together, for a container: everything that ParsePlan checks; what a
// node stores is inside the model and disjoint; and the `slices` of all nodes together are every
// unit of every expert exactly once.
//   FAILED_PRECONDITION  the plan is one for another container, or the model has no experts
//   INVALID_ARGUMENT     names the nodes, and units and experts that are given twice or to nobody
absl::Status CheckPlan(const PoolPlan& plan, const Manifest& manifest);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_PLAN_H_

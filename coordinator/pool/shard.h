// Makes the partitions of a pool from a container: copies ranges of units, and never requantizes.
#ifndef SHOAL_COORDINATOR_POOL_SHARD_H_
#define SHOAL_COORDINATOR_POOL_SHARD_H_

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/partition_writer.h"
#include "common/io/file.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

struct ShardOptions {
  std::string only_node;  // the name of the one whose partition is made; empty: all
  // Free bytes of the file system that holds a path. Tests give their own.
  std::function<absl::StatusOr<uint64_t>(const std::string&)> free_disk_bytes = FreeDiskBytes;
};

using ShardProgress = PartitionProgress;

struct ShardedNode : WrittenPartition {
  std::string name;
  std::string directory;
  std::vector<ExpertSlice> slices;  // what the node computes and what it stores beside
  bool already_there = false;
};

struct ShardReport {
  std::vector<ShardedNode> nodes;  // in the plan's order
};

// Writes `out`/NAME for every node of the plan, or for one. The checksum of every unit and its digest in the hash tree are checked on the way. The
// work on a partition happens in `out`/NAME.partial, which becomes `out`/NAME in one rename; killed
// at any moment, a later call goes on from the banks that are finished, which it reads and checks
// first, and ends with the same bytes. `out` is created where it does not exist.
//   CANCELLED            `stop` came; what is finished is kept
//   FAILED_PRECONDITION  another process is at work in NAME.partial, or it holds other work
//   ALREADY_EXISTS       `out`/NAME is something else than a partition of this node with these slices
//                        or more
//   RESOURCE_EXHAUSTED   the disk has not the space; compared in bytes before anything is written
//   DATA_LOSS            a unit of the container is damaged; names file, layer, expert and unit
//   INVALID_ARGUMENT     no node has that name, or `out` is the container itself
//   and CheckPlan's errors
absl::StatusOr<ShardReport> Shard(const Container& container, const PoolPlan& plan,
                                  const std::string& out, const ShardOptions& options,
                                  const std::function<void(const ShardProgress&)>& on_progress,
                                  std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_SHARD_H_

// What a node takes in memory, by part.
#ifndef SHOAL_EXPERT_NODE_NODE_MEMORY_PLAN_H_
#define SHOAL_EXPERT_NODE_NODE_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expert_node/node_experts.h"
#include "expert_node/service/node_service.h"

namespace shoal {

struct NodePlanOptions {
  int num_threads = 1;                        // that compute
  std::vector<int> cpus = {};                 // as ThreadPool's
  std::optional<int64_t> max_rows = {};       // absent: as many as the memory allows, at most 512
  std::optional<uint64_t> budget_bytes = {};  // absent: the usable memory less a reserve
  std::optional<uint64_t> usable_bytes = {};  // absent: UsableMemoryBytes()
  NodeService::Options service;               // max_rows of it is not looked at
};

struct NodeMemoryPart {
  std::string name;  // "program", "codebooks", "scratch", "messages", "connections", "expert_cache"
  uint64_t bytes = 0;
  std::string detail;  // for people
};

struct NodeMemoryPlan {
  std::vector<NodeMemoryPart> floor;  // the least of every part, expert_cache last
  uint64_t floor_bytes = 0;
  bool budget_given = false;
  uint64_t budget_bytes = 0;  // the one given, or chosen
  bool fits = false;          // whether the budget reaches the floor
  int64_t max_rows = 0;
  int64_t cache_records = 0;  // slots of the cache; all records at most
  uint64_t record_bytes = 0;  // of one slot
};

// Also of what does not fit: its plan has the floor.
NodeMemoryPlan PlanNodeMemory(const NodeExperts& experts, const NodePlanOptions& options);

// Why the plan does not fit, with the table of parts and what to do.
std::string FormatBelowFloor(const NodeMemoryPlan& plan);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_NODE_MEMORY_PLAN_H_

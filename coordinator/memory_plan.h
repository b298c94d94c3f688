// What running a container costs in memory, by part, from its manifest alone: nothing is loaded.
#ifndef SHOAL_COORDINATOR_MEMORY_PLAN_H_
#define SHOAL_COORDINATOR_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/sync/usable_memory.h"

namespace shoal {

struct PlanOptions {
  int64_t context_tokens = 4096;  // positions a session can hold
  int num_threads = 1;
  int num_sessions = 1;
  int num_nodes = 0;          // of a pool, whose messages take memory too
  bool audits = false;        // of its nodes, which ask others the same
  int num_copies = 0;         // of its experts, for nodes that are filled, at a time
  uint64_t client_bytes = 0;  // of requests that clients have open or in line, and of connections
  std::optional<uint64_t> budget_bytes = {};  // absent: chosen from the memory that is usable
  std::optional<uint64_t> usable_bytes = {};  // absent: UsableMemoryBytes()
};

struct MemoryPart {
  // "program", "trunk", "tokenizer", "kv_cache", "delta_state", "tokens_and_logits", "scratch",
  // "pool", "copies" and "clients" (where there are any), "expert_cache".
  std::string name;
  uint64_t bytes = 0;
  std::string detail;  // how the number comes about, for people
};

struct MemoryPlan {
  std::vector<MemoryPart> floor;  // the least of every part, expert_cache last
  uint64_t floor_bytes = 0;
  // The floor and 3, 2 or 1 working sets: the most that leaves a reserve of the usable memory (an
  // eighth, at least 256 MiB) to others. The floor alone where none of them does.
  uint64_t recommended_bytes = 0;
  bool budget_given = false;
  uint64_t budget_bytes = 0;  // the one given, or recommended_bytes
  // Whether the budget given, or without one the usable memory, reaches the floor.
  bool fits = false;
  // Memory this process may use now: MemAvailable, cut by cgroup limits.
  uint64_t usable_bytes = 0;
  int64_t prefill_chunk_tokens = 0;  // rows computed together in prefill, as the budget allows
  int64_t cache_records = 0;         // expert cache slots within the budget
  uint64_t record_bytes = 0;         // of one expert
  // Experts one token touches: MoE layers x num_experts_per_token records.
  uint64_t working_set_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t trunk_bytes_per_token = 0;  // read from memory for one decoded token
  uint64_t experts_total_bytes = 0;
};

// Also of a model that does not fit: its plan has the chunk and the cache of the floor. A number of
// bytes beyond 64 bits counts as their largest. INVALID_ARGUMENT where the context is not positive
// or longer than the model's, or there are no sessions or threads.
absl::StatusOr<MemoryPlan> PlanMemory(const Manifest& manifest, const PlanOptions& options);

// FAILED_PRECONDITION where the plan does not fit: the message is the table of parts, with what is
// missing and what to do. IsBelowFloor tells it from other errors of that code.
absl::Status CheckFits(const MemoryPlan& plan);
bool IsBelowFloor(const absl::Status& status);

// The plan as an aligned table for people: one line a part, GiB/MiB named.
std::string FormatPlan(const MemoryPlan& plan);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MEMORY_PLAN_H_

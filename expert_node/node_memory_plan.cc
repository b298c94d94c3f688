#include "expert_node/node_memory_plan.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/byte_size.h"
#include "common/sync/usable_memory.h"
#include "expert_node/expert_executor.h"
#include "expert_node/service/server_security.h"

namespace shoal {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// Code, libraries and allocator with gRPC and its threads: measured, and room for what differs from
// system to system.
constexpr uint64_t kProgramBytes = 40 * kMiB;
constexpr uint64_t kThreadBytes = 256 * 1024;

// Rows of a request to choose from, as those of a prefill chunk. The floor takes the most whose
// messages are within kFloorMessageBytes, or the fewest; a larger budget may take more.
constexpr std::array<int64_t, 6> kRows = {512, 256, 128, 64, 32, 16};
constexpr uint64_t kFloorMessageBytes = 16 * kMiB;
// Largest share of what the budget leaves above the floor that goes to longer requests.
constexpr uint64_t kMessageShare = 4;

uint64_t MessageBytes(const NodeExperts& experts, const NodePlanOptions& options, int64_t rows) {
  NodeService::Options service = options.service;
  service.max_rows = rows;
  return NodeMessageBytes(experts.model, service);
}

int64_t FloorRows(const NodeExperts& experts, const NodePlanOptions& options) {
  if (options.max_rows) {
    return *options.max_rows;
  }
  const auto* fit = std::find_if(kRows.begin(), kRows.end(), [&](int64_t rows) {
    return MessageBytes(experts, options, rows) <= kFloorMessageBytes;
  });
  return fit == kRows.end() ? kRows.back() : *fit;
}

int64_t LeastRecords(const NodeExperts& experts) {
  return experts.model.num_experts_per_token * std::ssize(experts.slices);
}

void AddFloor(const NodeExperts& experts, const NodePlanOptions& options, NodeMemoryPlan& plan) {
  const int threads = options.num_threads + options.service.num_workers;
  plan.floor.push_back({"program", kProgramBytes + kThreadBytes * static_cast<uint64_t>(threads),
                        absl::StrCat(options.num_threads, " threads compute")});
  plan.floor.push_back({"codebooks", experts.model.codebooks.size() * sizeof(LayerCodebooks), ""});
  plan.floor.push_back(
      {"scratch", ExpertExecutor::ScratchBytes(experts.model.layout, options.num_threads), ""});
  plan.floor.push_back({"messages", MessageBytes(experts, options, plan.max_rows),
                        absl::StrCat(plan.max_rows, " rows, ", options.service.max_queued_layers,
                                     " layers queued, ", options.service.max_streams, " streams")});
  plan.floor.push_back({"connections", kConnectionBytes, "what they bring before it is a message"});
  const int64_t records = LeastRecords(experts);
  plan.floor.push_back({"expert_cache", static_cast<uint64_t>(records) * plan.record_bytes,
                        absl::StrCat(records, " records")});
  for (const NodeMemoryPart& part : plan.floor) {
    plan.floor_bytes += part.bytes;
  }
}

// A node exists to hold experts: it takes what is there, and leaves a reserve to others.
uint64_t ChooseBudget(uint64_t usable_bytes) {
  return usable_bytes - std::min(usable_bytes, std::max(usable_bytes / 8, kGiB / 4));
}

void SpendBudget(const NodeExperts& experts, const NodePlanOptions& options, NodeMemoryPlan& plan) {
  uint64_t rest = plan.budget_bytes - std::min(plan.budget_bytes, plan.floor_bytes);
  const uint64_t floor_messages = MessageBytes(experts, options, plan.max_rows);
  for (const int64_t rows : kRows) {
    if (options.max_rows || rows <= plan.max_rows) {
      break;
    }
    const uint64_t extra = MessageBytes(experts, options, rows) - floor_messages;
    if (extra <= rest / kMessageShare) {
      plan.max_rows = rows;
      rest -= extra;
    }
  }
  int64_t all = 0;
  for (const SliceSource& source : experts.slices) {
    all += source.slice.experts.size() * std::ssize(experts.model.layers);
  }
  const int64_t least = LeastRecords(experts);
  plan.cache_records =
      std::max(least, std::min(all, least + static_cast<int64_t>(rest / plan.record_bytes)));
}

}  // namespace

NodeMemoryPlan PlanNodeMemory(const NodeExperts& experts, const NodePlanOptions& options) {
  NodeMemoryPlan plan;
  for (const SliceSource& source : experts.slices) {
    plan.record_bytes = std::max(plan.record_bytes, source.largest_read_bytes());
  }
  plan.max_rows = FloorRows(experts, options);
  AddFloor(experts, options, plan);
  plan.budget_given = options.budget_bytes.has_value();
  plan.budget_bytes = plan.budget_given
                          ? *options.budget_bytes
                          : ChooseBudget(options.usable_bytes.value_or(UsableMemoryBytes()));
  plan.fits = plan.budget_bytes >= plan.floor_bytes;
  SpendBudget(experts, options, plan);
  return plan;
}

std::string FormatBelowFloor(const NodeMemoryPlan& plan) {
  std::string text = absl::StrCat(
      plan.budget_given ? "the budget of " : "the memory that is free without a reserve, ",
      FormatByteSize(plan.budget_bytes), plan.budget_given ? " is " : ", is ",
      FormatByteSize(plan.floor_bytes - plan.budget_bytes), " below the least this node needs:\n");
  for (const NodeMemoryPart& part : plan.floor) {
    absl::StrAppendFormat(&text, "  %-13s %12s   %s\n", part.name, FormatByteSize(part.bytes),
                          part.detail);
  }
  absl::StrAppendFormat(&text, "  %-13s %12s\n", "floor", FormatByteSize(plan.floor_bytes));
  absl::StrAppend(&text,
                  plan.budget_given ? "Raise --budget to at least "
                                    : "Free memory, or insist with --budget of at least ",
                  plan.floor_bytes, " bytes; or lower --max-rows or --threads.");
  return text;
}

}  // namespace shoal

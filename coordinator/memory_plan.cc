#include "coordinator/memory_plan.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "coordinator/model/session_state.h"
#include "coordinator/model/trunk_weights.h"
#include "coordinator/model/workspace.h"
#include "expert_node/local_expert_backend.h"

namespace shoal {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Code, libraries and allocator of the program itself: 10 MiB measured (docs/measurements.md), and
// room for what differs from system to system.
constexpr uint64_t kProgramBytes = 16 * kMiB;
constexpr uint64_t kThreadBytes = 256 * 1024;

// Rank tables in memory for each byte of the rank file on disk, measured and rounded up.
constexpr uint64_t kTokenizerBytesPerFileByte = 8;

// Prefill chunks to choose from, largest first. The floor takes the largest whose scratch is within
// kFloorScratchBytes, or the smallest; a larger budget may take a larger one.
constexpr std::array<int64_t, 6> kChunkTokens = {512, 256, 128, 64, 32, 16};
constexpr uint64_t kFloorScratchBytes = 16 * kMiB;

// Largest share of what the budget leaves above the floor that goes to a larger prefill chunk.
constexpr uint64_t kScratchShare = 4;

uint64_t SessionScratch(const Manifest& manifest, const PlanOptions& options, int64_t rows) {
  return Workspace::Bytes(manifest.config, rows) * static_cast<uint64_t>(options.num_sessions);
}

int64_t FloorChunk(const Manifest& manifest, const PlanOptions& options) {
  for (const int64_t rows : kChunkTokens) {
    if (SessionScratch(manifest, options, rows) <= kFloorScratchBytes) {
      return rows;
    }
  }
  return kChunkTokens.back();
}

std::string CountOf(int64_t count, absl::string_view what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

std::vector<MemoryPart> FloorParts(const Manifest& manifest, const PlanOptions& options,
                                   const MemoryPlan& plan) {
  const ModelConfig& config = manifest.config;
  const auto sessions = static_cast<uint64_t>(options.num_sessions);
  std::vector<MemoryPart> parts;
  parts.push_back({"program",
                   kProgramBytes + kThreadBytes * static_cast<uint64_t>(options.num_threads),
                   CountOf(options.num_threads, "thread")});
  parts.push_back(
      {"trunk", TrunkWeights::MemoryBytes(manifest),
       absl::StrCat("everything but routed experts, ", TrunkTypeName(manifest.settings.trunk))});
  uint64_t rank_file_bytes = 0;
  if (const FileEntry* file = manifest.FindFile("tiktoken.model")) {
    rank_file_bytes = file->size_bytes;
  }
  parts.push_back({"tokenizer", rank_file_bytes * kTokenizerBytesPerFileByte, ""});
  parts.push_back(
      {"kv_cache",
       plan.kv_bytes_per_token * static_cast<uint64_t>(options.context_tokens) * sessions,
       absl::StrCat(plan.kv_bytes_per_token, " bytes a token, ",
                    CountOf(options.context_tokens, "token"), ", ",
                    CountOf(options.num_sessions, "session"))});
  parts.push_back({"delta_state", SessionState::DeltaBytes(config) * sessions,
                   "recurrent and convolution state, kept twice"});
  uint64_t scratch = SessionScratch(manifest, options, plan.prefill_chunk_tokens);
  int64_t min_records = 0;
  if (config.num_moe_layers() > 0) {
    min_records = LocalExpertBackend::MinCacheRecords(config);
    scratch += LocalExpertBackend::ScratchBytes(manifest, options.num_threads);
  }
  parts.push_back(
      {"scratch", scratch,
       absl::StrCat("prefill in chunks of ", CountOf(plan.prefill_chunk_tokens, "token"))});
  parts.push_back({"expert_cache", static_cast<uint64_t>(min_records) * plan.record_bytes,
                   CountOf(min_records, "record")});
  return parts;
}

// Bytes that are kept away from the recommendation, so that other programs and the page cache can
// live.
uint64_t Reserve(uint64_t usable_bytes) { return std::max(usable_bytes / 8, 256 * kMiB); }

uint64_t Recommend(const MemoryPlan& plan) {
  const uint64_t reserve = Reserve(plan.usable_bytes);
  for (uint64_t sets = 3; sets > 0; --sets) {
    const uint64_t bytes = plan.floor_bytes + sets * plan.working_set_bytes;
    if (bytes <= plan.usable_bytes && plan.usable_bytes - bytes >= reserve) {
      return bytes;
    }
  }
  return plan.floor_bytes;
}

// Spends what the budget leaves above the floor: first a larger prefill chunk, then cache slots.
void SpendBudget(const Manifest& manifest, const PlanOptions& options, MemoryPlan& plan) {
  uint64_t rest = plan.budget_bytes - plan.floor_bytes;
  const uint64_t floor_scratch = SessionScratch(manifest, options, plan.prefill_chunk_tokens);
  for (const int64_t rows : kChunkTokens) {
    if (rows <= plan.prefill_chunk_tokens) {
      break;
    }
    const uint64_t extra = SessionScratch(manifest, options, rows) - floor_scratch;
    if (extra <= rest / kScratchShare) {
      plan.prefill_chunk_tokens = rows;
      rest -= extra;
      break;
    }
  }
  if (manifest.config.num_moe_layers() == 0) {
    return;
  }
  const int64_t all = manifest.config.num_moe_layers() * manifest.config.moe.num_experts;
  plan.cache_records = std::min(all, LocalExpertBackend::MinCacheRecords(manifest.config) +
                                         static_cast<int64_t>(rest / plan.record_bytes));
}

std::string Size(uint64_t bytes) {
  if (bytes >= 1024 * kMiB) {
    return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1024.0 * kMiB));
  }
  return absl::StrFormat("%.2f MiB", static_cast<double>(bytes) / kMiB);
}

std::string FormatParts(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryPart& part : plan.floor) {
    absl::StrAppendFormat(&text, "  %-14s %14s   %s\n", part.name, Size(part.bytes), part.detail);
  }
  absl::StrAppendFormat(&text, "  %-14s %14s\n", "floor", Size(plan.floor_bytes));
  return text;
}

absl::Status CheckFloor(const PlanOptions& options, const MemoryPlan& plan) {
  const bool asked = options.budget_bytes.has_value();
  const uint64_t have = asked ? plan.budget_bytes : plan.usable_bytes;
  if (have >= plan.floor_bytes) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      asked ? "the budget of " : "the usable memory of ", Size(have), " is ",
      Size(plan.floor_bytes - have), " below the least this model needs:\n", FormatParts(plan),
      asked ? "Raise --budget to at least " : "Free memory, or insist with --budget of at least ",
      plan.floor_bytes, " bytes; or lower --ctx or --threads."));
}

}  // namespace

absl::StatusOr<MemoryPlan> PlanMemory(const Manifest& manifest, const PlanOptions& options) {
  const ModelConfig& config = manifest.config;
  if (options.context_tokens < 1 || options.context_tokens > config.max_position_embeddings) {
    return absl::InvalidArgumentError(absl::StrCat("context of ", options.context_tokens,
                                                   " tokens; this model takes 1 to ",
                                                   config.max_position_embeddings));
  }
  if (options.num_sessions < 1 || options.num_threads < 1) {
    return absl::InvalidArgumentError("sessions and threads must be at least 1");
  }
  MemoryPlan plan;
  plan.usable_bytes = options.usable_bytes.value_or(UsableMemoryBytes());
  plan.kv_bytes_per_token = SessionState::KvBytesPerToken(config);
  plan.trunk_bytes_per_token = TrunkWeights::MemoryBytes(manifest);
  if (const TrunkEntry* embedding = manifest.FindTrunk("model.embed_tokens.weight");
      embedding != nullptr && !config.tie_word_embeddings) {
    plan.trunk_bytes_per_token -= embedding->size_bytes;
  }
  if (config.num_moe_layers() > 0) {
    const auto layers = static_cast<uint64_t>(config.num_moe_layers());
    plan.record_bytes = manifest.unit_layout.record_bytes;
    plan.working_set_bytes =
        layers * static_cast<uint64_t>(config.moe.num_experts_per_token) * plan.record_bytes;
    plan.experts_total_bytes =
        layers * static_cast<uint64_t>(config.moe.num_experts) * plan.record_bytes;
  }
  plan.prefill_chunk_tokens = FloorChunk(manifest, options);
  plan.floor = FloorParts(manifest, options, plan);
  for (const MemoryPart& part : plan.floor) {
    plan.floor_bytes += part.bytes;
  }
  plan.recommended_bytes = Recommend(plan);
  plan.budget_bytes = options.budget_bytes.value_or(plan.recommended_bytes);
  SHOAL_RETURN_IF_ERROR(CheckFloor(options, plan));
  SpendBudget(manifest, options, plan);
  return plan;
}

std::string FormatPlan(const MemoryPlan& plan) {
  std::string text = FormatParts(plan);
  absl::StrAppendFormat(&text, "  %-14s %14s\n", "recommended", Size(plan.recommended_bytes));
  absl::StrAppendFormat(&text, "  %-14s %14s   %s\n", "budget", Size(plan.budget_bytes),
                        absl::StrCat("prefill in chunks of ", plan.prefill_chunk_tokens,
                                     " tokens, ", plan.cache_records, " expert records cached"));
  absl::StrAppendFormat(&text, "  %-14s %14s\n", "usable now", Size(plan.usable_bytes));
  absl::StrAppendFormat(&text,
                        "\n  one token touches %s of experts and %s of trunk; all experts are %s\n",
                        Size(plan.working_set_bytes), Size(plan.trunk_bytes_per_token),
                        Size(plan.experts_total_bytes));
  return text;
}

}  // namespace shoal

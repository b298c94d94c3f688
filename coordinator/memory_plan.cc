#include "coordinator/memory_plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/io/byte_size.h"
#include "common/io/checked_range.h"
#include "common/status/status_macros.h"
#include "coordinator/model/session_state.h"
#include "coordinator/model/trunk_weights.h"
#include "coordinator/model/workspace.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/service/model_stream.h"

namespace shoal {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

constexpr absl::string_view kBelowFloorMark = "shoal/below_floor";

// Code, libraries and allocator of the program itself: 17 MiB measured (docs/measurements.md), gRPC
// among them, and room for what differs from system to system.
constexpr uint64_t kProgramBytes = 24 * kMiB;
constexpr uint64_t kThreadBytes = 256 * 1024;
// gRPC with its threads and buffers, measured and rounded up.
constexpr uint64_t kPoolProgramBytes = 16 * kMiB;

// Rank tables in memory for each byte of the rank file on disk, measured and rounded up.
constexpr uint64_t kTokenizerBytesPerFileByte = 8;

// Prefill chunks to choose from, largest first. The floor takes the largest whose scratch is within
// kFloorScratchBytes, or the smallest; a larger budget may take a larger one.
constexpr std::array<int64_t, 6> kChunkTokens = {512, 256, 128, 64, 32, 16};
constexpr uint64_t kFloorScratchBytes = 16 * kMiB;

// Largest share of what the budget leaves above the floor that goes to a larger prefill chunk.
constexpr uint64_t kScratchShare = 4;

// What the heap holds beside the arenas, for each session. In bytes a vocabulary entry: 4 for the
// session's logits, and while a token is drawn 8 for its score, 24 for its candidate and 1 for
// whether it was seen.
constexpr uint64_t kVocabularyBytes = 4 + 8 + 24 + 1;
// In bytes a position: 4 for the session's tokens, which have the whole context reserved, and 8 for
// a prompt and its copy while a chat adds to it or a file is loaded.
constexpr uint64_t kPositionBytes = 4 + 8;

// Products and sums that a hostile manifest or an absurd number of sessions cannot wrap: what does
// not fit is more memory than there is.
uint64_t Times(uint64_t a, uint64_t b) {
  return CheckedMul(a, b).value_or(std::numeric_limits<uint64_t>::max());
}
uint64_t Plus(uint64_t a, uint64_t b) {
  return b <= std::numeric_limits<uint64_t>::max() - a ? a + b
                                                       : std::numeric_limits<uint64_t>::max();
}

uint64_t SessionScratch(const Manifest& manifest, const PlanOptions& options, int64_t rows) {
  return Times(Workspace::Bytes(manifest.config, rows),
               static_cast<uint64_t>(options.num_sessions));
}

// For each node and session the rows and ids of a chunk and its sums, as message and as bytes on
// their way.
uint64_t PoolMessages(const Manifest& manifest, const PlanOptions& options, int64_t rows) {
  const uint64_t row_bytes =
      static_cast<uint64_t>(manifest.config.hidden_size) * (sizeof(float) + sizeof(int64_t)) +
      static_cast<uint64_t>(manifest.config.moe.num_experts_per_token) * 2 * sizeof(int64_t);
  const uint64_t messages = Times(Times(2 * row_bytes, static_cast<uint64_t>(rows)),
                                  static_cast<uint64_t>(options.num_nodes));
  // An audit holds an answer beside its question to others and, where they differ, to the node again.
  const uint64_t at_once = options.audits ? 3 : 1;
  return Times(Times(messages, at_once), static_cast<uint64_t>(options.num_sessions));
}

// Everything that grows with the rows of a chunk.
uint64_t ChunkBytes(const Manifest& manifest, const PlanOptions& options, int64_t rows) {
  return Plus(SessionScratch(manifest, options, rows), PoolMessages(manifest, options, rows));
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
  const auto context = static_cast<uint64_t>(options.context_tokens);
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
  parts.push_back({"kv_cache", Times(Times(plan.kv_bytes_per_token, context), sessions),
                   absl::StrCat(plan.kv_bytes_per_token, " bytes a token, ",
                                CountOf(options.context_tokens, "token"), ", ",
                                CountOf(options.num_sessions, "session"))});
  parts.push_back({"delta_state", Times(SessionState::DeltaBytes(config), sessions),
                   "recurrent and convolution state, kept twice"});
  const uint64_t heap =
      static_cast<uint64_t>(config.vocab_size) * kVocabularyBytes + context * kPositionBytes;
  parts.push_back({"tokens_and_logits", Times(heap, sessions), "and what choosing a token takes"});
  uint64_t scratch = SessionScratch(manifest, options, plan.prefill_chunk_tokens);
  int64_t min_records = 0;
  if (config.num_moe_layers() > 0) {
    min_records = LocalExpertBackend::MinCacheRecords(config);
    scratch = Plus(scratch, LocalExpertBackend::ScratchBytes(manifest, options.num_threads));
  }
  parts.push_back(
      {"scratch", scratch,
       absl::StrCat("prefill in chunks of ", CountOf(plan.prefill_chunk_tokens, "token"))});
  if (options.num_nodes > 0) {
    parts.push_back(
        {"pool",
         Plus(kPoolProgramBytes, PoolMessages(manifest, options, plan.prefill_chunk_tokens)),
         absl::StrCat("messages of ", CountOf(options.num_nodes, "node"))});
  }
  if (options.num_copies > 0) {
    // One record as it is read, and each twice: as a message and as bytes on their way.
    parts.push_back({"copies",
                     Plus(options.num_nodes > 0 ? 0 : kPoolProgramBytes,
                          (2 * static_cast<uint64_t>(options.num_copies) + 1) *
                              std::max(plan.record_bytes, kModelPieceBytes)),
                     absl::StrCat("for ", CountOf(options.num_copies, "node"), " that is filled")});
  }
  if (options.client_bytes > 0) {
    parts.push_back({"clients", options.client_bytes,
                     "requests that are computed and that wait, and what connections bring"});
  }
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
    const uint64_t bytes = Plus(plan.floor_bytes, Times(sets, plan.working_set_bytes));
    if (bytes <= plan.usable_bytes && plan.usable_bytes - bytes >= reserve) {
      return bytes;
    }
  }
  return plan.floor_bytes;
}

// Spends what the budget leaves above the floor: first a larger prefill chunk, then cache slots.
void SpendBudget(const Manifest& manifest, const PlanOptions& options, MemoryPlan& plan) {
  uint64_t rest = plan.budget_bytes - std::min(plan.budget_bytes, plan.floor_bytes);
  const uint64_t floor_bytes = ChunkBytes(manifest, options, plan.prefill_chunk_tokens);
  for (const int64_t rows : kChunkTokens) {
    if (rows <= plan.prefill_chunk_tokens) {
      break;
    }
    const uint64_t extra = ChunkBytes(manifest, options, rows) - floor_bytes;
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

std::string FormatParts(const MemoryPlan& plan) {
  std::string text;
  for (const MemoryPart& part : plan.floor) {
    absl::StrAppendFormat(&text, "  %-17s %14s   %s\n", part.name, FormatByteSize(part.bytes),
                          part.detail);
  }
  absl::StrAppendFormat(&text, "  %-17s %14s\n", "floor", FormatByteSize(plan.floor_bytes));
  return text;
}

// What the floor has to fit in.
uint64_t Available(const MemoryPlan& plan) {
  return plan.budget_given ? plan.budget_bytes : plan.usable_bytes;
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
    plan.floor_bytes = Plus(plan.floor_bytes, part.bytes);
  }
  plan.recommended_bytes = Recommend(plan);
  plan.budget_given = options.budget_bytes.has_value();
  plan.budget_bytes = options.budget_bytes.value_or(plan.recommended_bytes);
  plan.fits = Available(plan) >= plan.floor_bytes;
  SpendBudget(manifest, options, plan);
  return plan;
}

absl::Status CheckFits(const MemoryPlan& plan) {
  if (plan.fits) {
    return absl::OkStatus();
  }
  const uint64_t have = Available(plan);
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat(plan.budget_given ? "the budget of " : "the usable memory of ",
                   FormatByteSize(have), " is ", FormatByteSize(plan.floor_bytes - have),
                   " below the least this model needs:\n", FormatParts(plan),
                   plan.budget_given ? "Raise --budget to at least "
                                     : "Free memory, or insist with --budget of at least ",
                   plan.floor_bytes, " bytes; or lower --ctx or --threads."));
  status.SetPayload(kBelowFloorMark, absl::Cord());
  return status;
}

bool IsBelowFloor(const absl::Status& status) {
  return status.GetPayload(kBelowFloorMark).has_value();
}

std::string FormatPlan(const MemoryPlan& plan) {
  std::string text = FormatParts(plan);
  absl::StrAppendFormat(&text, "  %-17s %14s\n", "recommended",
                        FormatByteSize(plan.recommended_bytes));
  absl::StrAppendFormat(&text, "  %-17s %14s   %s\n", "budget", FormatByteSize(plan.budget_bytes),
                        absl::StrCat("prefill in chunks of ", plan.prefill_chunk_tokens,
                                     " tokens, ", plan.cache_records, " expert records cached"));
  absl::StrAppendFormat(&text, "  %-17s %14s\n", "usable now", FormatByteSize(plan.usable_bytes));
  absl::StrAppendFormat(
      &text, "\n  one token touches %s of experts and %s of trunk; all experts are %s\n",
      FormatByteSize(plan.working_set_bytes), FormatByteSize(plan.trunk_bytes_per_token),
      FormatByteSize(plan.experts_total_bytes));
  return text;
}

}  // namespace shoal

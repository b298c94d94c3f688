// Counters of a run, for people and as JSON.
#ifndef SHOAL_COORDINATOR_CLI_STATISTICS_H_
#define SHOAL_COORDINATOR_CLI_STATISTICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/cli/console.h"
#include "coordinator/generate.h"
#include "coordinator/model.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// Experts of all layers together (the `layer` field is 0). `before` holds the counters at the start
// of the interval, empty for since the model was opened.
ExpertLayerStats TotalExperts(const std::vector<ExpertLayerStats>& now,
                              const std::vector<ExpertLayerStats>& before = {});

// Adds expert_hits, expert_misses, expert_reads, expert_bytes, expert_wait_ms, expert_compute_ms.
void AddExpertFields(const ExpertLayerStats& stats, Json& json);
// Adds budget_bytes, cache_records, context_tokens, num_threads, cpus, experts, trunk, arithmetic,
// expert_io, direct_io, peak_rss_bytes; with a pool also nodes, as NodesJson.
void AddModelFields(const Model& model, Json& json);
// One object a node: name, address, state, last_error, requests, hedges, losses.
Json NodesJson(const std::vector<PoolNodeStatus>& nodes);
// One object a layer, the fields of AddExpertFields and "layer".
Json LayersJson(const std::vector<ExpertLayerStats>& stats);
// Adds finish_reason, prompt_tokens, generated_tokens, prefill_ms, decode_ms, tokens_per_second,
// prefill_tokens_per_second.
void AddGenerateFields(const GenerateResult& result, Json& json);

// One line for people: tokens, times and rates, why it ended, FormatExperts and peak memory.
std::string FormatGenerate(const GenerateResult& result, const ExpertLayerStats& experts);
// "3000 of 4096 experts from the cache, 1096 reads, 12.3 MiB read".
std::string FormatExperts(const ExpertLayerStats& experts);
// One line a node; empty without a pool.
std::string FormatNodes(const std::vector<PoolNodeStatus>& nodes);
// The effective mode, several lines, those of the nodes first.
std::string FormatMode(const EffectiveMode& mode);

// Per second; 0 where no time passed.
double Rate(int64_t count, absl::Duration time);

// The most memory the process has had resident; 0 where the system does not tell.
uint64_t PeakRssBytes();

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_STATISTICS_H_

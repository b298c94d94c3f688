#include "coordinator/cli/statistics.h"

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/io/byte_size.h"
#include "common/sync/cpu_list.h"
#include "coordinator/memory_plan.h"

namespace shoal {
namespace {

Json ProfileJson(const ThreadProfile& profile) {
  Json json;
  if (profile.expert_splits) {
    json["expert_splits"] = profile.expert_splits->ToJson();
    json["expert_splits_origin"] = profile.expert_splits_origin;
  }
  json["least_parallel_multiply_adds"] = profile.least_parallel_cost;
  json["least_parallel_multiply_adds_origin"] = profile.least_parallel_cost_origin;
  return json;
}

std::string FormatProfile(const ThreadProfile& profile) {
  std::string text;
  if (profile.expert_splits) {
    absl::StrAppend(&text, "            experts by ", profile.expert_splits->ToString(), " (",
                    profile.expert_splits_origin, ")\n");
  }
  absl::StrAppend(&text, "            loops from ", profile.least_parallel_cost, " multiply-adds (",
                  profile.least_parallel_cost_origin, ")\n");
  return text;
}

}  // namespace

ExpertLayerStats TotalExperts(const std::vector<ExpertLayerStats>& now,
                              const std::vector<ExpertLayerStats>& before) {
  ExpertLayerStats total;
  for (const ExpertLayerStats& layer : now) {
    total += layer;
  }
  for (const ExpertLayerStats& layer : before) {
    total -= layer;
  }
  return total;
}

void AddExpertFields(const ExpertLayerStats& stats, Json& json) {
  json["expert_hits"] = stats.expert_hits;
  json["expert_misses"] = stats.expert_misses;
  json["expert_reads"] = stats.expert_reads;
  json["expert_bytes"] = stats.expert_bytes;
  json["expert_wait_ms"] = absl::ToDoubleMilliseconds(stats.wait_time);
  json["expert_compute_ms"] = absl::ToDoubleMilliseconds(stats.compute_time);
}

void AddModelFields(const Model& model, Json& json) {
  const EffectiveMode& mode = model.mode();
  json["budget_bytes"] = mode.plan.budget_bytes;
  json["cache_records"] = mode.expert_io.cache_records;
  json["context_tokens"] = mode.context_tokens;
  json["num_threads"] = mode.num_threads;
  json["cpus"] = FormatCpuList(mode.cpus);
  json["thread_profile"] = ProfileJson(mode.threads);
  json["experts"] = mode.experts;
  json["trunk"] = mode.trunk;
  json["arithmetic"] = std::string(ExpertArithmeticName(mode.arithmetic));
  json["kernels"] = std::string(KernelTargetName(mode.kernels));
  json["expert_io"] = mode.expert_io.engine;
  json["direct_io"] = mode.expert_io.direct;
  json["peak_rss_bytes"] = PeakRssBytes();
  if (!mode.nodes.empty()) {
    json["nodes"] = NodesJson(mode.nodes);
  }
}

Json NodesJson(const std::vector<PoolNodeStatus>& nodes) {
  Json json = Json::array();
  for (const PoolNodeStatus& node : nodes) {
    Json fields;
    fields["name"] = node.name;
    fields["address"] = node.address;
    fields["state"] = std::string(NodeStateName(node.state));
    fields["last_error"] = node.last_error;
    fields["requests"] = node.requests;
    fields["hedges"] = node.hedges;
    fields["failures"] = node.failures;
    fields["losses"] = node.losses;
    json.push_back(fields);
  }
  return json;
}

Json LayersJson(const std::vector<ExpertLayerStats>& stats) {
  Json layers = Json::array();
  for (const ExpertLayerStats& layer : stats) {
    Json fields;
    fields["layer"] = layer.layer;
    AddExpertFields(layer, fields);
    layers.push_back(fields);
  }
  return layers;
}

void AddGenerateFields(const GenerateResult& result, Json& json) {
  const auto generated = static_cast<int64_t>(result.ids.size());
  json["finish_reason"] = std::string(FinishReasonName(result.finish_reason));
  json["prompt_tokens"] = result.prompt_tokens;
  json["generated_tokens"] = generated;
  json["prefill_ms"] = absl::ToDoubleMilliseconds(result.prefill_time);
  json["decode_ms"] = absl::ToDoubleMilliseconds(result.decode_time);
  json["tokens_per_second"] = Rate(generated, result.decode_time);
  json["prefill_tokens_per_second"] = Rate(result.prompt_tokens, result.prefill_time);
}

std::string FormatGenerate(const GenerateResult& result, const ExpertLayerStats& experts) {
  const auto generated = static_cast<int64_t>(result.ids.size());
  return absl::StrFormat(
      "%d tokens in %.2f s (%.2f tokens/s) after %d prompt tokens in %.2f s (%.1f tokens/s), "
      "ended by %s; %s; peak memory %s",
      generated, absl::ToDoubleSeconds(result.decode_time), Rate(generated, result.decode_time),
      result.prompt_tokens, absl::ToDoubleSeconds(result.prefill_time),
      Rate(result.prompt_tokens, result.prefill_time), FinishReasonName(result.finish_reason),
      FormatExperts(experts), FormatByteSize(PeakRssBytes()));
}

std::string FormatExperts(const ExpertLayerStats& experts) {
  const int64_t used = experts.expert_hits + experts.expert_misses;
  return absl::StrFormat("%d of %d experts from the cache, %d reads, %s read", experts.expert_hits,
                         used, experts.expert_reads, FormatByteSize(experts.expert_bytes));
}

std::string FormatNodes(const std::vector<PoolNodeStatus>& nodes) {
  std::string text;
  for (const PoolNodeStatus& node : nodes) {
    absl::StrAppendFormat(&text, "node:       %s at %s, %s: %s\n", node.name, node.address,
                          NodeStateName(node.state),
                          absl::StrJoin(node.slices, "; ", [](std::string* out, const auto& slice) {
                            absl::StrAppend(out, FormatSlice(slice));
                          }));
  }
  return text;
}

std::string FormatMode(const EffectiveMode& mode) {
  const ExpertIoMode& io = mode.expert_io;
  return absl::StrFormat(
      "%sexperts:    %s, %s kernels, %s with %s, cache of %d records (%s)\n"
      "trunk:      %s, arithmetic %s\n"
      "threads:    %d on CPUs %s\n%s"
      "context:    %d tokens, prefill in chunks of %d\n%s",
      FormatNodes(mode.nodes), mode.experts, std::string(KernelTargetName(mode.kernels)),
      io.direct ? "direct reads"
                : absl::StrCat("reads through the page cache (", io.why_not_direct, ")"),
      io.engine, io.cache_records, FormatByteSize(io.cache_bytes), mode.trunk,
      std::string(ExpertArithmeticName(mode.arithmetic)), mode.num_threads,
      FormatCpuList(mode.cpus), FormatProfile(mode.threads), mode.context_tokens,
      mode.plan.prefill_chunk_tokens, FormatPlan(mode.plan));
}

double Rate(int64_t count, absl::Duration time) {
  const double seconds = absl::ToDoubleSeconds(time);
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

uint64_t PeakRssBytes() {
  // Not getrusage: its ru_maxrss begins with the memory of the process that started this one.
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    absl::string_view value = line;
    uint64_t kib = 0;
    if (absl::ConsumePrefix(&value, "VmHWM:") && absl::ConsumeSuffix(&value, "kB") &&
        absl::SimpleAtoi(value, &kib)) {
      return kib * 1024;
    }
  }
  return 0;
}

}  // namespace shoal

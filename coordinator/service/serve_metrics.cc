#include "coordinator/service/serve_metrics.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/metrics/process_metrics.h"
#include "expert_node/expert_metrics.h"

namespace shoal {
namespace {

MetricLabels OfNode(const PoolNodeStatus& node) { return {{"node", node.name}}; }

void AppendStates(std::span<const PoolNodeStatus> nodes, PrometheusText& text) {
  text.Gauge("shoal_pool_node_state", "1 for the state that the node is in, 0 for the others.");
  for (const PoolNodeStatus& node : nodes) {
    for (const NodeState state : kNodeStates) {
      MetricLabels labels = OfNode(node);
      labels.emplace_back("state", NodeStateName(state));
      text.Sample(labels, static_cast<uint64_t>(node.state == state ? 1 : 0));
    }
  }
}

void AppendCounters(std::span<const PoolNodeStatus> nodes, PrometheusText& text) {
  const auto family = [&](absl::string_view name, absl::string_view help, auto value) {
    text.Counter(name, help);
    for (const PoolNodeStatus& node : nodes) {
      text.Sample(OfNode(node), static_cast<uint64_t>(value(node)));
    }
  };
  using Node = const PoolNodeStatus&;
  family("shoal_pool_node_requests_total", "Layers that the node answered.",
         [](Node node) { return node.requests; });
  family("shoal_pool_node_hedges_total", "Given to another holder because the node was late.",
         [](Node node) { return node.hedges; });
  family("shoal_pool_node_failures_total", "Layers that the node answered with an error.",
         [](Node node) { return node.failures; });
  family("shoal_pool_node_losses_total", "Streams to the node that ended.",
         [](Node node) { return node.losses; });
  family("shoal_pool_node_audits_total", "Answers of the node that somebody else computed too.",
         [](Node node) { return node.audits; });
  family("shoal_pool_node_expert_hits_total", "Experts that the node found in its memory.",
         [](Node node) { return node.work.expert_hits; });
  family("shoal_pool_node_expert_misses_total", "Experts that the node had to read.",
         [](Node node) { return node.work.expert_misses; });
  family("shoal_pool_node_read_bytes_total", "Bytes that the node read from its disk.",
         [](Node node) { return node.work.expert_bytes; });
}

// Where the round trips of a node went; the parts add up to them.
void AppendLayerTimes(std::span<const PoolNodeStatus> nodes, PrometheusText& text) {
  text.Counter("shoal_pool_node_layer_seconds_total",
               "Round trips of the node's layers, by what the time went into.");
  for (const PoolNodeStatus& node : nodes) {
    const NodeWork& work = node.work;
    const std::pair<absl::string_view, absl::Duration> parts[] = {
        {"disk", work.disk_wait},
        {"compute", work.execute - work.disk_wait},
        {"queue", work.queue},
        {"network", work.round_trip - work.execute - work.queue}};
    for (const auto& [part, time] : parts) {
      MetricLabels labels = OfNode(node);
      labels.emplace_back("part", part);
      // The node's clock and ours need not agree to the nanosecond.
      text.Sample(labels, std::max(time, absl::ZeroDuration()));
    }
  }
}

}  // namespace

void AppendPoolMetrics(uint64_t epoch, std::span<const PoolNodeStatus> nodes,
                       PrometheusText& text) {
  text.Gauge("shoal_pool_epoch",
             "Epoch of the plan in force; counters of nodes begin again with it.");
  text.Sample({}, epoch);
  AppendStates(nodes, text);
  AppendCounters(nodes, text);
  AppendLayerTimes(nodes, text);
}

void AppendModelMetrics(Model& model, PrometheusText& text) {
  const EffectiveMode mode = model.mode();
  AppendProcessMetrics("shoal serve", mode.plan.budget_bytes, text);
  text.Gauge("shoal_memory_planned_bytes",
             "The least that a part of the process needs, by its plan.");
  for (const MemoryPart& part : mode.plan.floor) {
    text.Sample({{"part", part.name}}, part.bytes);
  }
  AppendExpertMetrics(model.ExpertStats(), text);
  if (model.pool() != nullptr) {
    AppendPoolMetrics(model.pool()->plan().epoch, mode.nodes, text);
  }
}

}  // namespace shoal

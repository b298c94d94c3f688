// What the experts of a process cost, as metrics.
#ifndef SHOAL_EXPERT_NODE_EXPERT_METRICS_H_
#define SHOAL_EXPERT_NODE_EXPERT_METRICS_H_

#include <span>

#include "common/metrics/prometheus_text.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// Counters shoal_expert_hits_total, _misses_total, _reads_total, _read_bytes_total,
// _disk_wait_seconds_total and _compute_seconds_total, of all layers together.
void AppendExpertMetrics(std::span<const ExpertLayerStats> layers, PrometheusText& text);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_METRICS_H_

// What GET /metrics of `shoal serve` tells of the model and its pool.
#ifndef SHOAL_COORDINATOR_SERVICE_SERVE_METRICS_H_
#define SHOAL_COORDINATOR_SERVICE_SERVE_METRICS_H_

#include <cstdint>
#include <span>

#include "common/metrics/prometheus_text.h"
#include "coordinator/model.h"
#include "coordinator/pool/pool_backend.h"

namespace shoal {

// The process, the parts of its memory plan, its experts and its pool. docs/operations.md lists the
// names, which stay as they are.
void AppendModelMetrics(Model& model, PrometheusText& text);

// shoal_pool_*: the plan's epoch, and of every node its state, counters, and the time of its layers
// split into disk, compute, queue and network.
void AppendPoolMetrics(uint64_t epoch, std::span<const PoolNodeStatus> nodes, PrometheusText& text);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_SERVE_METRICS_H_

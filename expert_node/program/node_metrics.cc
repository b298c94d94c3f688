#include "expert_node/program/node_metrics.h"

#include "common/metrics/process_metrics.h"
#include "common/metrics/prometheus_text.h"
#include "expert_node/expert_metrics.h"

namespace shoal {

std::string NodeMetrics(const NodeMemoryPlan& plan, const LocalExpertBackend& experts,
                        const NodeService& service) {
  PrometheusText text;
  AppendProcessMetrics("shoal-node", plan.budget_bytes, text);
  AppendExpertMetrics(experts.Stats(), text);
  const NodeService::State state = service.state();
  text.Gauge("shoal_node_streams", "Coordinators' streams that are open.");
  text.Sample({}, static_cast<uint64_t>(state.open_streams));
  text.Gauge("shoal_node_draining", "1: takes no new work.");
  text.Sample({}, static_cast<uint64_t>(state.draining ? 1 : 0));
  text.Counter("shoal_node_layers_total", "Layers computed for coordinators.");
  text.Sample({{"result", "ok"}}, state.counts.layers - state.counts.failed_layers);
  text.Sample({{"result", "error"}}, state.counts.failed_layers);
  text.Counter("shoal_node_rows_total", "Rows of those layers.");
  text.Sample({}, state.counts.rows);
  text.Counter("shoal_node_queue_seconds_total", "Time from a layer's arrival to its work.");
  text.Sample({}, state.counts.queue_time);
  text.Counter("shoal_node_execute_seconds_total",
               "Time of that work, the wait for the disk included.");
  text.Sample({}, state.counts.execute_time);
  return text.Take();
}

}  // namespace shoal

#include "expert_node/expert_metrics.h"

namespace shoal {

void AppendExpertMetrics(std::span<const ExpertLayerStats> layers, PrometheusText& text) {
  ExpertLayerStats all;
  for (const ExpertLayerStats& layer : layers) {
    all += layer;
  }
  text.Counter("shoal_expert_hits_total", "Experts found in memory.");
  text.Sample({}, static_cast<uint64_t>(all.expert_hits));
  text.Counter("shoal_expert_misses_total", "Experts that had to be read.");
  text.Sample({}, static_cast<uint64_t>(all.expert_misses));
  text.Counter("shoal_expert_reads_total", "Reads issued for experts.");
  text.Sample({}, static_cast<uint64_t>(all.expert_reads));
  text.Counter("shoal_expert_read_bytes_total", "Bytes of experts read from disk.");
  text.Sample({}, all.expert_bytes);
  text.Counter("shoal_expert_disk_wait_seconds_total",
               "Time spent waiting for experts with nothing to compute.");
  text.Sample({}, all.wait_time);
  text.Counter("shoal_expert_compute_seconds_total", "Time spent computing experts.");
  text.Sample({}, all.compute_time);
}

}  // namespace shoal

// What every program of Shoal tells about itself.
#ifndef SHOAL_COMMON_METRICS_PROCESS_METRICS_H_
#define SHOAL_COMMON_METRICS_PROCESS_METRICS_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "common/metrics/prometheus_text.h"

namespace shoal {

// shoal_build_info, shoal_memory_budget_bytes, shoal_memory_resident_bytes and
// shoal_memory_peak_resident_bytes. The last two are absent where the system does not tell.
void AppendProcessMetrics(absl::string_view program, uint64_t budget_bytes, PrometheusText& text);

}  // namespace shoal

#endif  // SHOAL_COMMON_METRICS_PROCESS_METRICS_H_

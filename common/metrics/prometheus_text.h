// Numbers about a running program in the text format of Prometheus (version 0.0.4).
#ifndef SHOAL_COMMON_METRICS_PROMETHEUS_TEXT_H_
#define SHOAL_COMMON_METRICS_PROMETHEUS_TEXT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/metrics/histogram.h"

namespace shoal {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// Not thread-safe. A family (Counter, Gauge or Histogram) is begun once, and its samples follow it.
class PrometheusText {
 public:
  // Begin a family. `name` is made of a-z, 0-9 and _, with its unit and, for a counter, _total at its
  // end; `help` is one line.
  void Counter(absl::string_view name, absl::string_view help);
  void Gauge(absl::string_view name, absl::string_view help);

  // A sample of the family begun last; values of labels may be any text.
  void Sample(const MetricLabels& labels, uint64_t value);
  void Sample(const MetricLabels& labels, double value);
  void Sample(const MetricLabels& labels, absl::Duration value);  // in seconds

  // A whole family in seconds.
  void Histogram(absl::string_view name, absl::string_view help, const HistogramCounts& counts);

  // What was written, and nothing is left.
  std::string Take() { return std::exchange(text_, {}); }

 private:
  void Begin(absl::string_view name, absl::string_view help, absl::string_view type);
  void Line(absl::string_view name, const MetricLabels& labels, absl::string_view value);

  std::string text_;
  std::string name_;  // of the family begun last
};

}  // namespace shoal

#endif  // SHOAL_COMMON_METRICS_PROMETHEUS_TEXT_H_

#include "common/metrics/prometheus_text.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

// The shortest form that reads back as the same number.
std::string Number(double value) {
  std::string text = absl::StrFormat("%.15g", value);
  return std::stod(text) == value ? text : absl::StrFormat("%.17g", value);
}

}  // namespace

void PrometheusText::Counter(absl::string_view name, absl::string_view help) {
  Begin(name, help, "counter");
}

void PrometheusText::Gauge(absl::string_view name, absl::string_view help) {
  Begin(name, help, "gauge");
}

void PrometheusText::Sample(const MetricLabels& labels, uint64_t value) {
  Line(name_, labels, absl::StrCat(value));
}

void PrometheusText::Sample(const MetricLabels& labels, double value) {
  Line(name_, labels, Number(value));
}

void PrometheusText::Sample(const MetricLabels& labels, absl::Duration value) {
  Sample(labels, absl::ToDoubleSeconds(value));
}

void PrometheusText::Histogram(absl::string_view name, absl::string_view help,
                               const HistogramCounts& counts) {
  Begin(name, help, "histogram");
  const std::string bucket = absl::StrCat(name, "_bucket");
  int64_t so_far = 0;
  for (size_t i = 0; i < counts.bounds.size(); ++i) {
    so_far += counts.counts[i];
    Line(bucket, {{"le", Number(absl::ToDoubleSeconds(counts.bounds[i]))}}, absl::StrCat(so_far));
  }
  so_far += counts.counts.back();
  Line(bucket, {{"le", "+Inf"}}, absl::StrCat(so_far));
  Line(absl::StrCat(name, "_sum"), {}, Number(absl::ToDoubleSeconds(counts.sum)));
  Line(absl::StrCat(name, "_count"), {}, absl::StrCat(so_far));
}

void PrometheusText::Begin(absl::string_view name, absl::string_view help, absl::string_view type) {
  name_ = std::string(name);
  absl::StrAppend(&text_, "# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n");
}

void PrometheusText::Line(absl::string_view name, const MetricLabels& labels,
                          absl::string_view value) {
  absl::StrAppend(&text_, name);
  absl::string_view before = "{";
  for (const auto& [label, text] : labels) {
    absl::StrAppend(&text_, before, label, "=\"",
                    absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
                    "\"");
    before = ",";
  }
  absl::StrAppend(&text_, labels.empty() ? " " : "} ", value, "\n");
}

}  // namespace shoal

#include "common/metrics/process_metrics.h"

#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/version.h"

namespace shoal {

void AppendProcessMetrics(absl::string_view program, uint64_t budget_bytes, PrometheusText& text) {
  text.Gauge("shoal_build_info", "Always 1; the labels say what runs.");
  text.Sample({{"program", std::string(program)}, {"version", std::string(kVersion)}}, uint64_t{1});
  text.Gauge("shoal_memory_budget_bytes", "Most memory that the process takes.");
  text.Sample({}, budget_bytes);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    const bool now = absl::StartsWith(line, "VmRSS:");
    if (!now && !absl::StartsWith(line, "VmHWM:")) {
      continue;
    }
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    uint64_t kib = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &kib)) {
      continue;
    }
    text.Gauge(now ? "shoal_memory_resident_bytes" : "shoal_memory_peak_resident_bytes",
               now ? "Memory that the process has now." : "The most that it has had.");
    text.Sample({}, kib * 1024);
  }
}

}  // namespace shoal

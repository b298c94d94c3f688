// What was done for clients since the start.
#ifndef SHOAL_COORDINATOR_SERVICE_INFERENCE_COUNTERS_H_
#define SHOAL_COORDINATOR_SERVICE_INFERENCE_COUNTERS_H_

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/metrics/histogram.h"
#include "common/metrics/prometheus_text.h"

namespace shoal {

// Thread-safe.
struct InferenceCounters {
  std::atomic<uint64_t> calls{0};  // that got a session
  std::atomic<uint64_t> prompt_tokens{0};
  std::atomic<uint64_t> generated_tokens{0};
  // Generate and Chat, those that were refused included, by the code that they ended with.
  std::array<std::atomic<uint64_t>, 17> ended{};
  Histogram first_token{TokenTimeBounds()};  // from a call's arrival to its first token
  Histogram token{TokenTimeBounds()};  // from each token to the next, other calls' turns included

  void AddEnded(absl::StatusCode code) { ++ended[static_cast<size_t>(code) % ended.size()]; }
};

// shoal_inference_calls_total{code} of the codes that occurred, and the rest of the counters.
void AppendInferenceCounters(const InferenceCounters& counters, PrometheusText& text);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_INFERENCE_COUNTERS_H_

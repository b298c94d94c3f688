#include "coordinator/service/inference_counters.h"

#include <cstddef>

namespace shoal {

void AppendInferenceCounters(const InferenceCounters& counters, PrometheusText& text) {
  text.Counter("shoal_inference_calls_total",
               "Generate and Chat calls that ended, by their gRPC status.");
  for (size_t code = 0; code < counters.ended.size(); ++code) {
    if (const uint64_t count = counters.ended[code]; count > 0) {
      text.Sample({{"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code))}}, count);
    }
  }
  text.Counter("shoal_inference_prompt_tokens_total", "Tokens of prompts that were computed.");
  text.Sample({}, counters.prompt_tokens.load());
  text.Counter("shoal_inference_generated_tokens_total", "Tokens that were generated.");
  text.Sample({}, counters.generated_tokens.load());
  text.Histogram("shoal_inference_first_token_seconds",
                 "From a call's arrival to its first token, the wait in line included.",
                 counters.first_token.Counts());
  text.Histogram("shoal_inference_token_seconds",
                 "From each token of a call to its next, the turns of other calls included.",
                 counters.token.Counts());
}

}  // namespace shoal

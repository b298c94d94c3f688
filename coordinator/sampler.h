// Choice of the next token from logits.
#ifndef SHOAL_COORDINATOR_SAMPLER_H_
#define SHOAL_COORDINATOR_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace shoal {

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p. The defaults are
// greedy.
struct SamplingOptions {
  double temperature =
      0.0;  // 0: the largest logit (lowest id on ties); otherwise logits are divided by it
  int64_t top_k = 0;  // keep the k largest; 0: all
  double top_p =
      1.0;  // keep the smallest set of most likely tokens whose probability reaches top_p
  double min_p = 0.0;               // keep tokens at least min_p times as likely as the likeliest
  double repetition_penalty = 1.0;  // divides positive and multiplies negative logits of tokens
                                    // seen before (CTRL, section 4.1)
  uint64_t seed = 0;
};

// INVALID_ARGUMENT names the field, its value and the accepted range.
absl::Status ValidateSampling(const SamplingOptions& options);

// Deterministic: the same options, logits and history give the same token everywhere.
class Sampler {
 public:
  // REQUIRES: ValidateSampling(options) is OK.
  explicit Sampler(const SamplingOptions& options);
  // `logits` [vocab_size]; `history` are the tokens the penalty looks at.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  SamplingOptions options_;
  uint64_t draws_ = 0;
};

// One entry of a next-token distribution, best first.
struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
  double logit = 0;
};
// The `count` likeliest tokens under softmax(logits).
std::vector<TokenProbability> TopTokens(std::span<const float> logits, int64_t count);

// ln softmax(logits)[id], in double.
double LogProbability(std::span<const float> logits, int32_t id);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SAMPLER_H_

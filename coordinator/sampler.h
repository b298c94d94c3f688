// Choice of the next token from logits.
#ifndef SHOAL_COORDINATOR_SAMPLER_H_
#define SHOAL_COORDINATOR_SAMPLER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/split_mix.h"

namespace shoal {

// Applied in this order: repetition penalty, temperature, top-k, top-p, min-p. Each step sees only
// what the steps before it kept. Ties in a logit count as "lower id is larger". The defaults are
// greedy.
struct SamplingOptions {
  // 0: the largest logit after the penalty; otherwise logits are divided by it.
  double temperature = 0.0;
  // Keep the k largest; 0: all.
  int64_t top_k = 0;
  // Keep the smallest set of most likely tokens whose probability reaches top_p.
  double top_p = 1.0;
  // Keep tokens at least min_p times as likely as the likeliest.
  double min_p = 0.0;
  // Divides positive and multiplies negative logits of tokens seen before, once however often they
  // were seen (CTRL, section 4.1).
  double repetition_penalty = 1.0;
  uint64_t seed = 0;
};

// INVALID_ARGUMENT names the field, its value and the accepted range.
absl::Status ValidateSampling(const SamplingOptions& options);

// Deterministic: the same options, logits and history give the same token on every machine. The
// n-th draw compares (SplitMix64(seed, n) >> 11) * 2^-53 of the kept probability with the running
// sum over the kept tokens in order of id. Greedy choices draw nothing.
class Sampler {
 public:
  // REQUIRES: ValidateSampling(options) is OK.
  explicit Sampler(const SamplingOptions& options);
  // `logits` [vocab_size], not empty; `history` are the tokens the penalty looks at (ids outside
  // the vocabulary are ignored). A logit that is NaN or -infinity is never chosen while there is
  // another; where there is none the answer is 0.
  int32_t Sample(std::span<const float> logits, std::span<const int32_t> history);

 private:
  struct Candidate {
    double score = 0;  // logit after penalty and temperature, relative to the largest
    int32_t id = 0;
    double weight = 0;  // e^score, proportional to the probability
  };
  static bool Before(const Candidate& a, const Candidate& b);
  std::vector<double> Penalized(std::span<const float> logits,
                                std::span<const int32_t> history) const;
  void KeepTopK(std::vector<Candidate>& candidates) const;
  void KeepTopP(std::vector<Candidate>& candidates) const;
  void KeepMinP(std::vector<Candidate>& candidates) const;
  int32_t Draw(const std::vector<Candidate>& candidates);

  SamplingOptions options_;
  uint64_t draws_ = 0;
};

// One entry of a next-token distribution, best first.
struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
  double logit = 0;
};
// The `count` likeliest tokens under softmax(logits), fewer where the vocabulary is smaller; lower
// ids first on ties.
std::vector<TokenProbability> TopTokens(std::span<const float> logits, int64_t count);

// ln softmax(logits)[id], in double. REQUIRES: 0 <= id < logits.size().
double LogProbability(std::span<const float> logits, int32_t id);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SAMPLER_H_

#include "coordinator/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/math.h"
#include "kernels/math_vectors.h"

namespace shoal {
namespace {

constexpr double kNever = -std::numeric_limits<double>::infinity();

absl::Status OutOfRange(absl::string_view field, double value, absl::string_view range) {
  return absl::InvalidArgumentError(
      absl::StrFormat("%s is %.9g; it must be %s", field, value, range));
}

// First index of the largest value; 0 where nothing is above -infinity.
int32_t ArgMax(const std::vector<double>& values) {
  return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// ln of the sum of e^logit.
double LogSumExp(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  constexpr size_t kAtOnce = 256;
  double sum = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kAtOnce) {
    const std::span<const float> some =
        logits.subspan(begin, std::min(kAtOnce, logits.size() - begin));
    double values[kAtOnce];
    std::transform(some.begin(), some.end(), values,
                   [largest](float logit) { return logit - largest; });
    ExpAll({values, some.size()});
    sum = std::accumulate(values, values + some.size(), sum);
  }
  return largest + std::log(sum);
}

}  // namespace

absl::Status ValidateSampling(const SamplingOptions& options) {
  // Negated comparisons, so that NaN is refused too.
  if (!(options.temperature >= 0 && std::isfinite(options.temperature))) {
    return OutOfRange("temperature", options.temperature, "0 (greedy) or a positive number");
  }
  if (options.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k is ", options.top_k, "; it must be 0 (all) or a positive number"));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return OutOfRange("top_p", options.top_p, "more than 0 and at most 1");
  }
  if (!(options.min_p >= 0 && options.min_p <= 1)) {
    return OutOfRange("min_p", options.min_p, "from 0 to 1");
  }
  if (!(options.repetition_penalty > 0 && std::isfinite(options.repetition_penalty))) {
    return OutOfRange("repetition_penalty", options.repetition_penalty,
                      "a positive number (1: no penalty)");
  }
  return absl::OkStatus();
}

Sampler::Sampler(const SamplingOptions& options) : options_(options) {}

bool Sampler::Before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

int32_t Sampler::Sample(std::span<const float> logits, std::span<const int32_t> history) {
  const std::vector<double> scores = Penalized(logits, history);
  const int32_t best = ArgMax(scores);
  const double largest = scores[best];
  if (options_.temperature == 0 || !std::isfinite(largest)) {
    return best;
  }
  std::vector<Candidate> candidates;
  candidates.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    if (scores[i] > kNever) {
      const double score = (scores[i] - largest) / options_.temperature;
      candidates.push_back({.score = score, .id = static_cast<int32_t>(i), .weight = Exp(score)});
    }
  }
  KeepTopK(candidates);
  KeepTopP(candidates);
  KeepMinP(candidates);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  return Draw(candidates);
}

std::vector<double> Sampler::Penalized(std::span<const float> logits,
                                       std::span<const int32_t> history) const {
  std::vector<double> scores(logits.begin(), logits.end());
  for (double& score : scores) {
    if (std::isnan(score)) {
      score = kNever;
    }
  }
  if (options_.repetition_penalty == 1.0) {
    return scores;
  }
  std::vector<bool> seen(scores.size());
  for (const int32_t id : history) {
    if (id < 0 || static_cast<size_t>(id) >= scores.size() || seen[id]) {
      continue;
    }
    seen[id] = true;
    scores[id] = scores[id] > 0 ? scores[id] / options_.repetition_penalty
                                : scores[id] * options_.repetition_penalty;
  }
  return scores;
}

void Sampler::KeepTopK(std::vector<Candidate>& candidates) const {
  const auto k = static_cast<size_t>(options_.top_k);
  if (k == 0 || k >= candidates.size()) {
    return;
  }
  std::nth_element(candidates.begin(), candidates.begin() + options_.top_k, candidates.end(),
                   Before);
  candidates.resize(k);
  // The selection leaves an order that is the library's own; sums must not depend on it.
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

void Sampler::KeepTopP(std::vector<Candidate>& candidates) const {
  if (options_.top_p >= 1) {
    return;
  }
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  // A heap, because the set is usually a small part of the vocabulary: only what is kept is sorted.
  const auto after = [](const Candidate& a, const Candidate& b) { return Before(b, a); };
  std::make_heap(candidates.begin(), candidates.end(), after);
  auto heap_end = candidates.end();
  double kept = 0;
  while (heap_end != candidates.begin() && kept < options_.top_p * total) {
    std::pop_heap(candidates.begin(), heap_end, after);
    --heap_end;
    kept += heap_end->weight;
  }
  candidates.erase(candidates.begin(), heap_end);
}

void Sampler::KeepMinP(std::vector<Candidate>& candidates) const {
  // The likeliest token survives every step before, and its weight is e^0.
  std::erase_if(candidates,
                [this](const Candidate& candidate) { return candidate.weight < options_.min_p; });
}

int32_t Sampler::Draw(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& candidate : candidates) {
    total += candidate.weight;
  }
  const double uniform = static_cast<double>(SplitMix64(options_.seed, draws_++) >> 11) * 0x1.0p-53;
  double sum = 0;
  for (const Candidate& candidate : candidates) {
    sum += candidate.weight;
    if (sum > uniform * total) {
      return candidate.id;
    }
  }
  return candidates.back().id;
}

std::vector<TokenProbability> TopTokens(std::span<const float> logits, int64_t count) {
  if (logits.empty() || count <= 0) {
    return {};
  }
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t kept = std::min(ids.size(), static_cast<size_t>(count));
  std::partial_sort(
      ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
      [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
  const double log_sum = LogSumExp(logits);
  std::vector<TokenProbability> best;
  for (size_t i = 0; i < kept; ++i) {
    const double logit = logits[ids[i]];
    best.push_back({.id = ids[i], .probability = std::exp(logit - log_sum), .logit = logit});
  }
  return best;
}

double LogProbability(std::span<const float> logits, int32_t id) {
  return logits[id] - LogSumExp(logits);
}

}  // namespace shoal

#include "kernels/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/math_vectors.h"

namespace shoal {
namespace {

constexpr double kExcluded = -std::numeric_limits<double>::infinity();

void ComputeScores(bool softmax, std::span<const float> logits, std::span<double> scores) {
  if (!softmax) {
    std::copy(logits.begin(), logits.end(), scores.begin());
    SigmoidAll(scores);
    return;
  }
  const double maximum = *std::max_element(logits.begin(), logits.end());
  std::transform(logits.begin(), logits.end(), scores.begin(),
                 [maximum](float logit) { return logit - maximum; });
  ExpAll(scores);
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) {
    score /= sum;
  }
}

// Index of the largest value, the lowest on ties.
int64_t ArgMax(std::span<const double> values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

double SumOfTwoBest(std::span<const double> values) {
  double best = kExcluded;
  double second = kExcluded;
  for (const double value : values) {
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  return values.size() > 1 ? best + second : best;
}

// Sets the selection scores of all but the best groups to minus infinity.
void ExcludeGroups(const RouterOptions& options, std::span<double> selection,
                   std::span<double> group_scores) {
  const size_t group_size = selection.size() / group_scores.size();
  for (size_t g = 0; g < group_scores.size(); ++g) {
    group_scores[g] = SumOfTwoBest(selection.subspan(g * group_size, group_size));
  }
  // Scores are finite. Best groups are marked by +infinity as they are taken; what remains below it
  // is still to choose from.
  constexpr double kKept = std::numeric_limits<double>::infinity();
  const int64_t num_kept = std::min(options.topk_group, static_cast<int64_t>(group_scores.size()));
  for (int64_t kept = 0; kept < num_kept; ++kept) {
    size_t best = 0;
    for (size_t g = 1; g < group_scores.size(); ++g) {
      if (group_scores[g] != kKept &&
          (group_scores[best] == kKept || group_scores[g] > group_scores[best])) {
        best = g;
      }
    }
    group_scores[best] = kKept;
  }
  for (size_t g = 0; g < group_scores.size(); ++g) {
    if (group_scores[g] != kKept) {
      const auto group = selection.subspan(g * group_size, group_size);
      std::fill(group.begin(), group.end(), kExcluded);
    }
  }
}

}  // namespace

bool RouteToken(const RouterOptions& options, std::span<const float> logits,
                std::span<const float> bias, std::span<double> scratch,
                std::span<int32_t> expert_ids, std::span<float> expert_weights) {
  const size_t n = logits.size();
  const auto scores = scratch.first(n);
  const auto selection = scratch.subspan(n, n);
  ComputeScores(options.softmax, logits, scores);
  for (size_t i = 0; i < n; ++i) {
    selection[i] = scores[i] + (bias.empty() ? 0.0 : double{bias[i]});
  }
  if (!std::all_of(selection.begin(), selection.end(), [](double x) { return std::isfinite(x); })) {
    return false;
  }
  if (options.num_expert_group > 1) {
    ExcludeGroups(options, selection,
                  scratch.subspan(2 * n, static_cast<size_t>(options.num_expert_group)));
  }
  double sum = 0;
  for (int32_t& id : expert_ids) {
    id = static_cast<int32_t>(ArgMax(selection));
    selection[static_cast<size_t>(id)] = kExcluded;
    sum += scores[static_cast<size_t>(id)];
  }
  const bool divide = options.renormalize && expert_ids.size() > 1;
  for (size_t i = 0; i < expert_ids.size(); ++i) {
    double weight = scores[static_cast<size_t>(expert_ids[i])];
    if (divide) {
      weight /= sum + 1e-20;
    }
    expert_weights[i] = static_cast<float>(weight * options.routed_scaling_factor);
  }
  return true;
}

}  // namespace shoal

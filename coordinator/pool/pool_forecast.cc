#include "coordinator/pool/pool_forecast.h"

#include <algorithm>

#include "common/container/bank_scan.h"

namespace shoal {
namespace {

// The number of ways to choose k of n; as a floating-point number, because it may have 30 digits.
double Binomial(int64_t n, int64_t k) {
  double result = k <= n ? 1 : 0;
  for (int64_t i = 0; i < k && result > 0; ++i) {
    result *= static_cast<double>(n - i) / static_cast<double>(i + 1);
  }
  return result;
}

// One machine's experts in the draw: for x of them chosen, how many ways there are and how long
// they take.
struct Draw {
  std::vector<double> ways;
  std::vector<double> seconds;
};

Draw DrawOf(const ExpertLoad& load, int64_t chosen) {
  Draw draw;
  for (int64_t x = 0; x <= std::min(chosen, load.experts); ++x) {
    draw.ways.push_back(Binomial(load.experts, x));
    draw.seconds.push_back(
        x == 0 ? 0 : load.fixed_seconds + static_cast<double>(x) * load.seconds_per_expert);
  }
  return draw;
}

// The number of ways to draw `chosen` experts so that no machine takes longer than `limit`.
double WaysWithin(std::span<const Draw> draws, size_t chosen, double limit) {
  std::vector<double> total(chosen + 1, 0.0);
  total[0] = 1;
  for (const Draw& draw : draws) {
    std::vector<double> next(chosen + 1, 0.0);
    for (size_t x = 0; x < draw.ways.size() && draw.seconds[x] <= limit; ++x) {
      for (size_t before = 0; before + x <= chosen; ++before) {
        next[before + x] += total[before] * draw.ways[x];
      }
    }
    total = std::move(next);
  }
  return total[chosen];
}

}  // namespace

double ExpectedSlowest(std::span<const ExpertLoad> loads, int64_t num_experts, int64_t chosen) {
  double certain = 0;
  int64_t idle = num_experts;
  std::vector<Draw> draws;
  for (const ExpertLoad& load : loads) {
    if (load.experts == num_experts) {
      certain = std::max(
          certain, load.fixed_seconds + static_cast<double>(chosen) * load.seconds_per_expert);
    } else {
      idle -= load.experts;
      draws.push_back(DrawOf(load, chosen));
    }
  }
  if (draws.empty()) {
    return certain;
  }
  // Experts of nobody in this list take no time.
  draws.push_back(DrawOf({idle, 0, 0}, chosen));
  std::vector<double> times = {certain};
  for (const Draw& draw : draws) {
    std::copy_if(draw.seconds.begin(), draw.seconds.end(), std::back_inserter(times),
                 [certain](double seconds) { return seconds > certain; });
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  const double all = Binomial(num_experts, chosen);
  double mean = 0;
  double within = 0;
  for (const double time : times) {
    const double now = WaysWithin(draws, static_cast<size_t>(chosen), time) / all;
    mean += time * (now - within);
    within = now;
  }
  return mean;
}

PoolForecast::Cost PoolForecast::CostOf(std::span<const ExpertSlice> slices) const {
  const UnitLayout& layout = manifest_.unit_layout;
  const int64_t num_experts = manifest_.config.moe.num_experts;
  Cost cost;
  double bytes = 0;
  for (const ExpertSlice& slice : slices) {
    cost.experts += slice.experts.size();
    bytes += static_cast<double>(slice.experts.size()) *
             static_cast<double>(RecordBytes(layout, slice.units));
  }
  // Slices of the same experts are read one after the other.
  cost.experts = std::min(cost.experts, num_experts);
  cost.bytes_per_expert = cost.experts > 0 ? bytes / static_cast<double>(cost.experts) : 0;
  return cost;
}

double PoolForecast::HitRate(const NodeRates& node, double computed_bytes) const {
  // Experts that are all as likely, of which as many as fit are in memory.
  const double cached = static_cast<double>(node.cache_bytes) / computed_bytes;
  return std::max(options_.hit_rate, std::min(1.0, cached));
}

NodeTimes PoolForecast::TimesOf(const NodeRates& node, std::span<const ExpertSlice> slices) const {
  const Cost cost = CostOf(slices);
  const ModelConfig& config = manifest_.config;
  const double chosen = static_cast<double>(config.moe.num_experts_per_token) *
                        static_cast<double>(cost.experts) /
                        static_cast<double>(config.moe.num_experts);
  const double bytes = chosen * cost.bytes_per_expert;
  const double stored = cost.bytes_per_expert * static_cast<double>(cost.experts) *
                        static_cast<double>(manifest_.banks.size());
  NodeTimes times;
  times.read = bytes * (1 - HitRate(node, stored)) / node.read_bytes_per_second;
  times.compute = bytes / node.compute_bytes_per_second;
  times.network = absl::ToDoubleSeconds(node.round_trip);
  if (node.link_bytes_per_second > 0) {
    times.network += static_cast<double>(MessageBytes()) / node.link_bytes_per_second;
  }
  return times;
}

double PoolForecast::LayerSeconds(std::span<const NodeRates> nodes,
                                  std::span<const std::vector<ExpertSlice>> work) const {
  const auto& moe = manifest_.config.moe;
  std::vector<ExpertLoad> loads;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (work[i].empty()) {
      continue;
    }
    const NodeTimes times = TimesOf(nodes[i], work[i]);
    const int64_t experts = CostOf(work[i]).experts;
    const double mean_chosen = static_cast<double>(moe.num_experts_per_token) *
                               static_cast<double>(experts) / static_cast<double>(moe.num_experts);
    loads.push_back({experts, std::max(times.read, times.compute) / mean_chosen, times.network});
  }
  return ExpectedSlowest(loads, moe.num_experts, moe.num_experts_per_token);
}

double PoolForecast::TokensPerSecond(double layer_seconds) const {
  return 1 / (static_cast<double>(manifest_.banks.size()) * layer_seconds +
              absl::ToDoubleSeconds(options_.trunk_time));
}

double PoolForecast::RateOf(const NodeRates& node, double share) const {
  const double all = static_cast<double>(manifest_.unit_layout.record_bytes) *
                     static_cast<double>(manifest_.config.moe.num_experts) *
                     static_cast<double>(manifest_.banks.size());
  const double read_seconds = (1 - HitRate(node, all * share)) / node.read_bytes_per_second;
  return 1 / std::max(read_seconds, 1 / node.compute_bytes_per_second);
}

uint64_t PoolForecast::MessageBytes() const {
  // A row of float32, for each chosen expert an id of at most two bytes and a float32 weight; back
  // come 64-bit sums. Ids, slices and framing of both messages are small.
  constexpr uint64_t kIdAndWeight = 2 + sizeof(float);
  constexpr uint64_t kFraming = 128;
  const auto hidden = static_cast<uint64_t>(manifest_.config.hidden_size);
  const auto chosen = static_cast<uint64_t>(manifest_.config.moe.num_experts_per_token);
  return hidden * (sizeof(float) + sizeof(int64_t)) + chosen * kIdAndWeight + kFraming;
}

}  // namespace shoal

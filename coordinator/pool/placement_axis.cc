#include "coordinator/pool/placement_axis.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shoal {

absl::string_view PlacementName(Placement placement) {
  return placement == Placement::kUnits ? "units" : "experts";
}

std::vector<int64_t> Apportion(int64_t total, std::span<const double> rates) {
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  std::vector<double> quotas;
  std::vector<int64_t> counts;
  for (const double rate : rates) {
    quotas.push_back(static_cast<double>(total) * rate / sum);
    counts.push_back(static_cast<int64_t>(quotas.back()));
  }
  // How far a count is below its quota; rounding must not decide between equals.
  const auto lacks = [&](size_t i) {
    return std::round((quotas[i] - static_cast<double>(counts[i])) * 1e9);
  };
  std::vector<size_t> all(rates.size());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto less = [&](size_t a, size_t b) { return lacks(a) < lacks(b); };
  for (int64_t left = total - std::accumulate(counts.begin(), counts.end(), int64_t{0}); left > 0;
       --left) {
    ++counts[*std::max_element(all.begin(), all.end(), less)];
  }
  if (total >= std::ssize(rates)) {
    for (auto none = std::find(counts.begin(), counts.end(), 0); none != counts.end();
         none = std::find(counts.begin(), counts.end(), 0)) {
      // From whom it is missed least, of those that keep one.
      const auto giver = std::min_element(all.begin(), all.end(), [&](size_t a, size_t b) {
        const bool a_can = counts[a] > 1;
        const bool b_can = counts[b] > 1;
        return a_can != b_can ? a_can : lacks(a) < lacks(b);
      });
      --counts[*giver];
      *none = 1;
    }
  }
  return counts;
}

int64_t PlacementAxis::total() const {
  return placement_ == Placement::kUnits ? manifest_.unit_layout.num_units
                                         : manifest_.config.moe.num_experts;
}

ExpertSlice PlacementAxis::SliceOf(ItemRange range) const {
  ExpertSlice slice = manifest_.whole_experts();
  if (placement_ == Placement::kUnits) {
    slice.units = {range.begin, range.end};
  } else {
    slice.experts = {range.begin, range.end};
  }
  return slice;
}

std::optional<ItemRange> PlacementAxis::RangeOf(const ExpertSlice& slice) const {
  const ItemRange range = placement_ == Placement::kUnits
                              ? ItemRange{slice.units.begin, slice.units.end}
                              : ItemRange{slice.experts.begin, slice.experts.end};
  return SliceOf(range) == slice ? std::optional(range) : std::nullopt;
}

std::vector<int64_t> PlacementAxis::Shares(const PoolForecast& forecast,
                                           std::span<const NodeRates> nodes) const {
  std::vector<double> rates;
  rates.reserve(nodes.size());
  for (const NodeRates& node : nodes) {
    rates.push_back(forecast.RateOf(node, 1.0 / static_cast<double>(nodes.size())));
  }
  return Apportion(total(), rates);
}

std::vector<std::vector<ExpertSlice>> PlacementAxis::Ranges(std::span<const int64_t> sizes) const {
  std::vector<std::vector<ExpertSlice>> ranges;
  ranges.reserve(sizes.size());
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    std::vector<ExpertSlice>& slices = ranges.emplace_back();
    if (size > 0) {
      slices.push_back(SliceOf({begin, begin + size}));
    }
    begin += size;
  }
  return ranges;
}

}  // namespace shoal

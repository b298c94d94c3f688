#include "kernels/fixed_point.h"

#include <cmath>

namespace shoal {

bool AddFixedPoint(std::span<const double> terms, std::span<int64_t> out) {
  bool in_range = true;
  for (size_t i = 0; i < terms.size(); ++i) {
    // False for NaN too. Out-of-range terms are not converted: that would be undefined.
    const bool fits = std::fabs(terms[i]) <= kFixedPointTermLimit;
    in_range = in_range && fits;
    out[i] += fits ? static_cast<int64_t>(std::nearbyint(terms[i] * kFixedPointScale)) : 0;
  }
  return in_range;
}

void AddSums(std::span<const int64_t> sums, std::span<int64_t> out) {
  for (size_t i = 0; i < sums.size(); ++i) {
    // Unsigned, because sums may be those of a stranger's node.
    out[i] = static_cast<int64_t>(static_cast<uint64_t>(out[i]) + static_cast<uint64_t>(sums[i]));
  }
}

float FromFixedPoint(int64_t sum) {
  // The conversion rounds once; the power of two is exact. By way of double it would round twice.
  return static_cast<float>(sum) * static_cast<float>(1.0 / kFixedPointScale);
}

}  // namespace shoal

#include "kernels/fixed_point.h"

#include <bit>
#include <cmath>

namespace shoal {

void IntegersToDoubles(std::span<const int64_t> values, std::span<double> out) {
  constexpr uint64_t kTwo52 = 0x4330000000000000U;       // the bits of 2^52
  constexpr uint64_t kTwo84And63 = 0x4530000080000000U;  // of 2^84 + 2^63
  constexpr double kExcess = 0x1p84 + 0x1p63 + 0x1p52;
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<uint64_t>(values[i]);
    // The upper half is in the place where one stands for 2^32, its sign turned round, and the lower where it
    // stands for itself. All is exact but the last sum.
    const auto upper = std::bit_cast<double>((bits >> 32) ^ kTwo84And63) - kExcess;
    const auto lower = std::bit_cast<double>((bits & 0xFFFFFFFFU) | kTwo52);
    out[i] = upper + lower;
  }
}

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

#include "kernels/math.h"

#include <limits>

#include "kernels/math_constants.h"

namespace shoal {
namespace {

// 2^n for n in [-1022, 1023].
double PowerOfTwo(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

}  // namespace

double Exp(double x) {
  if (x != x) {
    return x;
  }
  if (x > kExpLargest) {
    return std::numeric_limits<double>::infinity();
  }
  if (x < kExpSmallest) {
    return 0.0;
  }
  const double n = std::nearbyint(x * kLog2E);
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  double p = kExpTaylor[0];
  for (int k = 1; k < kExpTerms; ++k) {
    p = std::fma(p, r, kExpTaylor[k]);
  }
  // Two factors: 2^n alone leaves the range of normal doubles at both ends.
  const auto half = static_cast<int64_t>(n) / 2;
  return p * PowerOfTwo(half) * PowerOfTwo(static_cast<int64_t>(n) - half);
}

double Log1pUnit(double y) {
  const double s = y / (2.0 + y);
  const double z = s * s;
  double p = kAtanhSeries[0];
  for (int k = 1; k < kAtanhTerms; ++k) {
    p = std::fma(p, z, kAtanhSeries[k]);
  }
  return 2.0 * s * p;
}

double Sigmoid(double x) { return 1.0 / (1.0 + Exp(-x)); }

double Silu(double x) { return x / (1.0 + Exp(-x)); }

double Softplus(double x) { return (x > 0 ? x : 0.0) + Log1pUnit(Exp(x > 0 ? -x : x)); }

uint16_t FloatToHalf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U);  // NaN
  }
  if (magnitude >= 0x477FF000U) {
    return static_cast<uint16_t>(sign | 0x7C00U);  // 65520 and up round to infinity
  }
  if (magnitude < 0x38800000U) {
    // Below 2^-14: adding 0.5 leaves the subnormal's bits, rounded to nearest even, in the low
    // mantissa.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

}  // namespace shoal

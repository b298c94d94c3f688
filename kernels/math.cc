#include "kernels/math.h"

#include <limits>

namespace shoal {
namespace {

// 2^n for n in [-1022, 1023].
double PowerOfTwo(int64_t n) {
  return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// 1/k! for k = 13 .. 0: the Taylor series of e^r, whose remainder for |r| <= ln(2)/2 is below
// 5e-18.
constexpr double kExpTaylor[] = {1.0 / 6227020800,
                                 1.0 / 479001600,
                                 1.0 / 39916800,
                                 1.0 / 3628800,
                                 1.0 / 362880,
                                 1.0 / 40320,
                                 1.0 / 5040,
                                 1.0 / 720,
                                 1.0 / 120,
                                 1.0 / 24,
                                 1.0 / 6,
                                 1.0 / 2,
                                 1.0,
                                 1.0};

// 1/(2k+1) for k = 17 .. 0: ln((1+s)/(1-s)) = 2s * sum z^k/(2k+1) with z = s^2 <= 1/9.
constexpr double kAtanhSeries[] = {1.0 / 35, 1.0 / 33, 1.0 / 31, 1.0 / 29, 1.0 / 27, 1.0 / 25,
                                   1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                   1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};

}  // namespace

double Exp(double x) {
  constexpr double kLog2E = 1.4426950408889634074;
  // ln 2 split in two, the first with trailing zero bits so that n * kLn2High is exact.
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  if (x != x) {
    return x;
  }
  if (x > 709.78) {
    return std::numeric_limits<double>::infinity();
  }
  if (x < -745.2) {
    return 0.0;
  }
  const double n = std::nearbyint(x * kLog2E);
  const double r = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, x));
  double p = kExpTaylor[0];
  for (int k = 1; k < 14; ++k) {
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
  for (int k = 1; k < 18; ++k) {
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

#include "kernels/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace shoal {
namespace {

TEST(MathTest, ExpIsWithinTwoRoundingErrorsOfTheTrueValue) {
  for (long double x = -708.0L; x < 709.0L; x += 0.0371L) {
    const auto rounded = static_cast<double>(x);
    const long double expected = std::exp(static_cast<long double>(rounded));
    EXPECT_LE(std::fabs(static_cast<long double>(Exp(rounded)) / expected - 1.0L), 4e-16L)
        << rounded;
  }
}

TEST(MathTest, ExpCoversBothEndsAndNan) {
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(1000.0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp(std::numeric_limits<double>::infinity()), std::numeric_limits<double>::infinity());
  EXPECT_EQ(Exp(-1000.0), 0.0);
  EXPECT_EQ(Exp(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
  // e^-740 is a denormal, 4.2e-322: about 85 units of the smallest one.
  EXPECT_NEAR(
      Exp(-740.0) / std::numeric_limits<double>::denorm_min(),
      static_cast<double>(std::exp(-740.0L) /
                          static_cast<long double>(std::numeric_limits<double>::denorm_min())),
      1.0);
}

TEST(MathTest, Log1pUnitKeepsRelativePrecisionNearZero) {
  for (long double y = 1e-300L; y <= 1.0L; y *= 1.37L) {
    const auto rounded = static_cast<double>(y);
    const long double expected = std::log1p(static_cast<long double>(rounded));
    EXPECT_LE(std::fabs(static_cast<long double>(Log1pUnit(rounded)) / expected - 1.0L), 5e-16L)
        << rounded;
  }
  EXPECT_EQ(Log1pUnit(0.0), 0.0);
}

TEST(MathTest, SigmoidSiluAndSoftplusFollowTheirDefinitions) {
  for (double x = -40; x < 40; x += 0.173) {
    const long double e = std::exp(static_cast<long double>(-x));
    EXPECT_NEAR(Sigmoid(x), static_cast<double>(1 / (1 + e)), 4e-16) << x;
    EXPECT_NEAR(Silu(x), static_cast<double>(x / (1 + e)), 1e-14) << x;
    EXPECT_NEAR(Softplus(x) / static_cast<double>(std::log1p(std::exp((long double)x))), 1.0, 1e-15)
        << x;
  }
  // No cut-off: PyTorch returns x above 20, which differs from this by 2e-11 there.
  EXPECT_GT(Softplus(21.0), 21.0);
  EXPECT_EQ(Softplus(1e6), 1e6);
  EXPECT_EQ(Softplus(-1e6), 0.0);
}

// The value of float16 bits by the definition of IEEE 754.
double HalfByDefinition(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  if (exponent == 31) {
    return fraction != 0 ? std::nan("") : sign * INFINITY;
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24)
                       : sign * std::ldexp(1024 + fraction, exponent - 25);
}

// The nearest float16 value, ties to the even last place; beyond 65504 by half a place: infinity.
double RoundToHalf(double value) {
  if (value == 0 || std::isinf(value)) {
    return value;
  }
  const double place = std::ldexp(1.0, std::max(std::ilogb(value), -14) - 10);
  const double rounded = std::nearbyint(value / place) * place;
  return std::fabs(rounded) > 65504 ? std::copysign(INFINITY, value) : rounded;
}

TEST(MathTest, EveryHalfConvertsToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float actual = HalfToFloat(half);
    const double expected = HalfByDefinition(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(actual)))) << bits;
      continue;
    }
    ASSERT_EQ(actual, expected) << bits;
    ASSERT_EQ(FloatToHalf(actual), half) << bits;
  }
}

TEST(MathTest, FloatsRoundToTheNearestHalf) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    // Half of the values in float16's own range, where rounding matters.
    float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (i % 2 == 0) {
      value = std::ldexp(static_cast<float>(random()) / 4294967296.0F - 0.5F, i / 2 % 44 - 26);
    }
    if (!std::isnan(value)) {
      ASSERT_EQ(HalfByDefinition(FloatToHalf(value)), RoundToHalf(value)) << value;
    }
  }
}

}  // namespace
}  // namespace shoal

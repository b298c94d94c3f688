#include "kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
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

TEST(MathTest, HalfConversionsAgreeWithTheCompilersType) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half_bits = static_cast<uint16_t>(bits);
    _Float16 half;
    std::memcpy(&half, &half_bits, sizeof(half));
    const auto expected = static_cast<float>(half);
    const float actual = HalfToFloat(half_bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(actual)) << bits;
      EXPECT_TRUE(std::isnan(HalfToFloat(FloatToHalf(actual)))) << bits;
      continue;
    }
    ASSERT_EQ(actual, expected) << bits;
    ASSERT_EQ(FloatToHalf(expected), half_bits) << bits;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(value)) {
      continue;
    }
    const auto half = static_cast<_Float16>(value);
    uint16_t expected = 0;
    std::memcpy(&expected, &half, sizeof(expected));
    ASSERT_EQ(FloatToHalf(value), expected) << value;
  }
}

}  // namespace
}  // namespace shoal

#include "kernels/fixed_point.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace shoal {
namespace {

constexpr double kStep = 0x1p-36;

int64_t Fixed(double term) {
  const double terms[] = {term};
  int64_t out[] = {0};
  EXPECT_TRUE(AddFixedPoint(terms, out)) << term;
  return out[0];
}

bool Accepted(double term) {
  const double terms[] = {1.0, term, 2.0};
  int64_t out[] = {0, 0, 0};
  return AddFixedPoint(terms, out);
}

TEST(FixedPointTest, ATermIsAMultipleOfTwoToTheMinus36) {
  EXPECT_EQ(Fixed(1.0), int64_t{1} << 36);
  EXPECT_EQ(Fixed(-1.0), -(int64_t{1} << 36));
  EXPECT_EQ(Fixed(kStep), 1);
  EXPECT_EQ(Fixed(0.0), 0);
  EXPECT_EQ(Fixed(-0.0), 0);
  EXPECT_EQ(Fixed(0.1), 6871947674);  // 6871947673.6
  EXPECT_EQ(Fixed(std::numeric_limits<double>::denorm_min()), 0);
}

TEST(FixedPointTest, HalvesRoundToEven) {
  EXPECT_EQ(Fixed(0.5 * kStep), 0);
  EXPECT_EQ(Fixed(1.5 * kStep), 2);
  EXPECT_EQ(Fixed(2.5 * kStep), 2);
  EXPECT_EQ(Fixed(-0.5 * kStep), 0);
  EXPECT_EQ(Fixed(-1.5 * kStep), -2);
  EXPECT_EQ(Fixed(-2.5 * kStep), -2);
  EXPECT_EQ(Fixed(std::nextafter(0.5 * kStep, 1.0)), 1);
}

TEST(FixedPointTest, TermsAreAddedToWhatIsThere) {
  const double terms[] = {1.0, -2.0, 3 * kStep};
  int64_t out[] = {5, int64_t{1} << 40, -7};
  ASSERT_TRUE(AddFixedPoint(terms, out));
  EXPECT_EQ(out[0], (int64_t{1} << 36) + 5);
  EXPECT_EQ(out[1], (int64_t{1} << 40) - (int64_t{1} << 37));
  EXPECT_EQ(out[2], -4);
  EXPECT_TRUE(AddFixedPoint({}, {}));
}

TEST(FixedPointTest, TermsBeyondTwoToThe17AreRefused) {
  EXPECT_EQ(Fixed(131072.0), int64_t{1} << 53);
  EXPECT_EQ(Fixed(-131072.0), -(int64_t{1} << 53));
  EXPECT_FALSE(Accepted(std::nextafter(131072.0, 1e9)));
  EXPECT_FALSE(Accepted(std::nextafter(-131072.0, -1e9)));
  EXPECT_FALSE(Accepted(1e300));
  EXPECT_FALSE(Accepted(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(Accepted(-std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(Accepted(std::numeric_limits<double>::quiet_NaN()));
}

TEST(FixedPointTest, SumsDoNotDependOnTheirOrder) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, 100);
  std::vector<double> terms(1000);
  for (double& term : terms) {
    term = normal(random);
  }
  int64_t expected = 0;
  for (int i = 0; i < 20; ++i) {
    int64_t sum = 0;
    for (const double term : terms) {
      ASSERT_TRUE(AddFixedPoint({&term, 1}, {&sum, 1}));
    }
    expected = i == 0 ? sum : expected;
    EXPECT_EQ(sum, expected);
    std::shuffle(terms.begin(), terms.end(), random);
  }
  // Each term was rounded by half a step at most.
  EXPECT_NEAR(static_cast<double>(expected) * kStep,
              std::accumulate(terms.begin(), terms.end(), 0.0), 501 * kStep);
}

// Those of a stranger's node may be anything.
TEST(FixedPointTest, SumsBeyondTheRangeWrapRound) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> sums = {kMost, -kMost, 5};
  std::vector<int64_t> out = {1, -2, -7};
  AddSums(sums, out);
  EXPECT_EQ(out, (std::vector<int64_t>{std::numeric_limits<int64_t>::min(), kMost, -2}));
}

TEST(FixedPointTest, ComesBackAsTheNearestFloat) {
  EXPECT_EQ(FromFixedPoint(0), 0.0F);
  EXPECT_EQ(FromFixedPoint(1), 0x1p-36F);
  EXPECT_EQ(FromFixedPoint(-3), -0x3p-36F);
  EXPECT_EQ(FromFixedPoint(int64_t{1} << 36), 1.0F);
  EXPECT_EQ(FromFixedPoint(6871947674), 0.1F);
  // Halfway between two floats of 24 bits, to even; a bit more or less, to that side.
  EXPECT_EQ(FromFixedPoint((int64_t{1} << 24) + 1), 0x1p-12F);
  EXPECT_EQ(FromFixedPoint((int64_t{1} << 24) + 3), 0x1.000004p-12F);
  // The same where the sum has more bits than a double: rounded once, not twice.
  constexpr int64_t kHalf = (int64_t{1} << 54) + (int64_t{1} << 30);
  EXPECT_EQ(FromFixedPoint(kHalf), 0x1p18F);
  EXPECT_EQ(FromFixedPoint(kHalf + 1), 0x1.000002p18F);
  EXPECT_EQ(FromFixedPoint(-kHalf - 1), -0x1.000002p18F);
  EXPECT_EQ(FromFixedPoint(std::numeric_limits<int64_t>::max()), 0x1p27F);
}

// Against the conversion of the language, where rounding is needed and where it is not.
TEST(IntegersToDoublesTest, RoundsAsTheConversionDoes) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> values = {0, 1, -1, kMin, kMin + 1, kMax, kMax - 1};
  for (int bit = 0; bit < 63; ++bit) {
    for (const int64_t near : {-3, -1, 0, 1, 2, 3}) {
      values.push_back((int64_t{1} << bit) + near);
      values.push_back(-(int64_t{1} << bit) + near);
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    values.push_back(static_cast<int64_t>(random()) >> (i % 64));
  }
  std::vector<double> out(values.size());
  IntegersToDoubles(values, out);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(out[i], static_cast<double>(values[i])) << values[i];
  }
}

TEST(FixedPointTest, TermsOfEverySizeAreRoundedOnceToEven) {
  std::mt19937_64 random(2);
  std::vector<double> terms = {131072.0,
                               -131072.0,
                               0x1p-37,
                               0x3p-37,
                               -0x1p-37,
                               -0x3p-37,
                               0.0,
                               0x1.fffffffffffffp16,
                               -0x1.fffffffffffffp16};
  for (int i = 0; i < 10000; ++i) {
    const double fraction = static_cast<double>(static_cast<int64_t>(random())) * 0x1p-63;
    terms.push_back(std::ldexp(fraction, 17 - i % 64));
  }
  std::vector<int64_t> out(terms.size(), -7);
  ASSERT_TRUE(AddFixedPoint(terms, out));
  for (size_t i = 0; i < terms.size(); ++i) {
    ASSERT_EQ(out[i], -7 + std::llrint(std::ldexp(terms[i], 36))) << terms[i];
  }
}

}  // namespace
}  // namespace shoal

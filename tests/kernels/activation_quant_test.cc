#include "kernels/activation_quant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kernels/expert_arithmetic.h"

namespace shoal {
namespace {

struct Quantized {
  double scale = 0;
  std::vector<int32_t> values;
};

Quantized Quantize(const std::vector<float>& x) {
  Quantized q;
  q.values.assign(x.size(), 12345);
  q.scale = QuantizeActivations(x, kExactPlanes, q.values);
  return q;
}

// 63 * (2^14 + 2^7 + 1): the largest value whose three digits, base 128, are 63.
constexpr int32_t kMax = 1040319;

TEST(ActivationQuantTest, TheLargestMagnitudeBecomesThreeFullPlanes) {
  EXPECT_EQ(ActivationMax(kExactPlanes), kMax);
  const Quantized q = Quantize({0.5F, -2.0F, 1.0F, 0.0F});
  EXPECT_DOUBLE_EQ(q.scale, 2.0 / kMax);
  // 260079.75 and 520159.5, the latter to even.
  EXPECT_EQ(q.values, (std::vector<int32_t>{260080, -kMax, 520160, 0}));
}

TEST(ActivationQuantTest, TwoPlanesAreTwoFullDigits) {
  EXPECT_EQ(ActivationMax(kFastPlanes), 63 * 128 + 63);
  const std::vector<float> x = {0.5F, -2.0F, 1.0F, 0.0F};
  std::vector<int32_t> q(4, 12345);
  EXPECT_DOUBLE_EQ(QuantizeActivations(x, kFastPlanes, q), 2.0 / 8127);
  // 2031.75 and 4063.5, the latter to even.
  EXPECT_EQ(q, (std::vector<int32_t>{2032, -8127, 4064, 0}));
}

TEST(ActivationQuantTest, HalvesRoundToEven) {
  // The largest value makes the scale 1.
  const Quantized q = Quantize({kMax, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 0.50000006F, 7.0F});
  EXPECT_EQ(q.scale, 1.0);
  EXPECT_EQ(q.values, (std::vector<int32_t>{kMax, 0, 2, 2, 0, -2, -2, 1, 7}));
}

TEST(ActivationQuantTest, AVectorOfZerosHasScaleZero) {
  const Quantized q = Quantize({0.0F, -0.0F, 0.0F});
  EXPECT_EQ(q.scale, 0.0);
  EXPECT_EQ(q.values, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(Quantize({}).scale, 0.0);
}

TEST(ActivationQuantTest, WhatIsNotFiniteIsReported) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::nanf(""), kInf, -kInf}) {
    for (size_t at = 0; at < 3; ++at) {
      std::vector<float> x = {1.0F, 2.0F, 3.0F};
      x[at] = bad;
      const Quantized q = Quantize(x);
      EXPECT_TRUE(std::isnan(q.scale));
      EXPECT_EQ(q.values, (std::vector<int32_t>{0, 0, 0}));
    }
  }
}

TEST(ActivationQuantTest, TheExtremesOfFloatAreQuantizedLikeAnyOther) {
  for (const float largest : {std::numeric_limits<float>::max(), std::numeric_limits<float>::min(),
                              std::numeric_limits<float>::denorm_min()}) {
    const Quantized q = Quantize({largest, -largest, 0.0F});
    EXPECT_EQ(q.values, (std::vector<int32_t>{kMax, -kMax, 0}));
    EXPECT_DOUBLE_EQ(q.scale, double{largest} / kMax);
  }
}

TEST(ActivationQuantTest, TheErrorIsHalfAStepAtMost) {
  std::mt19937 random(1);
  for (const size_t n : {size_t{1}, size_t{7}, size_t{8}, size_t{2304}, size_t{7168}}) {
    std::normal_distribution<float> normal(0.1F, 3.0F);
    std::vector<float> x(n);
    for (float& value : x) {
      value = normal(random);
    }
    const Quantized q = Quantize(x);
    int32_t largest = 0;
    for (size_t i = 0; i < n; ++i) {
      // Two roundings of doubles beside the rounding to an integer.
      ASSERT_LE(std::fabs(q.values[i] * q.scale - x[i]), q.scale * (0.5 + 1e-9)) << "element " << i;
      largest = std::max(largest, std::abs(q.values[i]));
    }
    EXPECT_EQ(largest, kMax);
  }
}

}  // namespace
}  // namespace shoal

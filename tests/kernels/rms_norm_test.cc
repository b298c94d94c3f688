#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/activation.h"

namespace shoal {
namespace {

TEST(RmsNormTest, DividesByTheRootMeanSquareAndMultipliesByTheWeight) {
  const std::vector<float> x = {3, -4, 0, 5};
  const std::vector<float> weight = {1, 2, 3, 0.5F};
  std::vector<float> out(4);
  RmsNorm(x, weight, 0.5, out);
  const double factor = 1.0 / std::sqrt((9 + 16 + 0 + 25) / 4.0 + 0.5);
  EXPECT_FLOAT_EQ(out[0], static_cast<float>(3 * factor));
  EXPECT_FLOAT_EQ(out[1], static_cast<float>(-4 * factor * 2));
  EXPECT_EQ(out[2], 0.0F);
  EXPECT_FLOAT_EQ(out[3], static_cast<float>(5 * factor * 0.5));
}

TEST(RmsNormTest, SurvivesSquaresThatOverflowFloat) {
  const std::vector<float> x = {1e30F, -1e30F};
  const std::vector<float> weight = {1, 1};
  std::vector<float> out(2);
  RmsNorm(x, weight, 1e-5, out);
  EXPECT_FLOAT_EQ(out[0], 1.0F);
  EXPECT_FLOAT_EQ(out[1], -1.0F);
}

TEST(RmsNormTest, ANanPoisonsItsRow) {
  const std::vector<float> x = {1, std::nanf(""), 2};
  const std::vector<float> weight = {1, 1, 1};
  std::vector<float> out(3);
  RmsNorm(x, weight, 1e-5, out);
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(SwiGluTest, MultipliesSiluOfTheGateByUp) {
  std::vector<float> gate = {1.5F, -3, 0};
  const std::vector<float> up = {-2, 10, 7};
  SwiGlu(gate, up);
  EXPECT_FLOAT_EQ(gate[0], static_cast<float>(1.5 / (1 + std::exp(-1.5)) * -2));
  EXPECT_FLOAT_EQ(gate[1], static_cast<float>(-3 / (1 + std::exp(3.0)) * 10));
  EXPECT_EQ(gate[2], 0.0F);
}

TEST(SigmoidInPlaceTest, MapsInfinitiesToZeroAndOne) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0, infinity, -infinity, 2};
  SigmoidInPlace(x);
  EXPECT_EQ(x[0], 0.5F);
  EXPECT_EQ(x[1], 1.0F);
  EXPECT_EQ(x[2], 0.0F);
  EXPECT_FLOAT_EQ(x[3], static_cast<float>(1 / (1 + std::exp(-2.0))));
}

}  // namespace
}  // namespace shoal

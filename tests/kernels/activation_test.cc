#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace shoal {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> GatedBy(std::vector<float> gate, const std::vector<float>& up) {
  SwiGlu(gate, up);
  return gate;
}

// gate * up / (1 + e^-gate), to the float nearest.
TEST(ActivationTest, SwiGluGivesTheValuesOfItsDefinition) {
  const std::vector<float> out =
      GatedBy({0.0F, 1.0F, -1.0F, 2.0F, 0.5F, -3.0F}, {5.0F, 1.0F, 1.0F, -3.0F, 2.0F, 10.0F});
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_EQ(out[1], 0.7310585786300049F);
  EXPECT_EQ(out[2], -0.2689414213699951F);
  EXPECT_EQ(out[3], -3 * 1.7615941559557649F);
  EXPECT_EQ(out[4], 0.6224593312018546F);
  EXPECT_EQ(out[5], -1.4227761953270035F);
}

TEST(ActivationTest, SwiGluIsTheRoundedDoubleValueOverTheWholeRange) {
  for (int i = -4000; i <= 4000; ++i) {
    const float gate = static_cast<float>(i) / 37.0F;
    const float up = 1.0F + static_cast<float>(i % 11) / 8.0F;
    const double exact = double{gate} / (1 + std::exp(-double{gate})) * up;
    // One rounding to float; the double value behind it is good to a few units.
    ASSERT_LE(std::fabs(GatedBy({gate}, {up})[0] - exact), 6e-8 * std::fabs(exact) + 1e-45) << gate;
  }
}

TEST(ActivationTest, SwiGluAtTheEnds) {
  EXPECT_EQ(GatedBy({1e30F}, {2.0F})[0], 2e30F);
  EXPECT_EQ(GatedBy({-1e30F}, {2.0F})[0], 0.0F);
  EXPECT_EQ(GatedBy({1e30F}, {1e30F})[0], kInf);
  EXPECT_TRUE(std::isnan(GatedBy({std::nanf("")}, {1.0F})[0]));
  EXPECT_TRUE(std::isnan(GatedBy({1.0F}, {std::nanf("")})[0]));
  SwiGlu({}, {});
}

TEST(ActivationTest, EachElementDependsOnItsOwnPairAlone) {
  std::vector<float> gate = {1.0F, std::nanf(""), 1.0F};
  SwiGlu(gate, std::vector<float>{1.0F, 1.0F, 2.0F});
  EXPECT_EQ(gate[2], 2 * gate[0]);
}

TEST(ActivationTest, SigmoidGivesTheValuesOfItsDefinition) {
  std::vector<float> x = {0.0F, 1.0F, -1.0F, 2.0F, 100.0F, -200.0F, kInf, -kInf, std::nanf("")};
  SigmoidInPlace(x);
  EXPECT_EQ(x[0], 0.5F);
  EXPECT_EQ(x[1], 0.7310585786300049F);
  EXPECT_EQ(x[2], 0.2689414213699951F);
  EXPECT_EQ(x[3], 0.8807970779778823F);
  EXPECT_EQ(x[4], 1.0F);
  EXPECT_EQ(x[5], 0.0F);  // e^-200 is below the floats
  EXPECT_EQ(x[6], 1.0F);
  EXPECT_EQ(x[7], 0.0F);
  EXPECT_TRUE(std::isnan(x[8]));
}

TEST(ActivationTest, SigmoidIsTheRoundedDoubleValueOverTheWholeRange) {
  for (int i = -4000; i <= 4000; ++i) {
    std::vector<float> x = {static_cast<float>(i) / 41.0F};
    const double exact = 1 / (1 + std::exp(-double{x[0]}));
    SigmoidInPlace(x);
    ASSERT_LE(std::fabs(x[0] - exact), 6e-8 * exact + 1e-45) << i;
  }
}

}  // namespace
}  // namespace shoal

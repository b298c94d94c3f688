#include "kernels/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace shoal {
namespace {

// Golden example of the model architecture notes: 8 experts, 3 chosen, factor 2.446.
const std::vector<float> kLogits = {0.5F, -1, 2, 0, 1, -0.5F, 0.25F, 1.5F};
const std::vector<float> kBias = {0, 0.9F, -0.6F, 0.2F, 0, 0, 0.35F, -0.2F};

struct Routed {
  bool ok = false;
  std::vector<int32_t> ids;
  std::vector<float> weights;
};

Routed Route(const RouterOptions& options, const std::vector<float>& logits,
             const std::vector<float>& bias, size_t k) {
  Routed routed;
  routed.ids.resize(k);
  routed.weights.resize(k);
  std::vector<double> scratch(2 * logits.size() + static_cast<size_t>(options.num_expert_group));
  routed.ok = RouteToken(options, logits, bias, scratch, routed.ids, routed.weights);
  return routed;
}

TEST(RouterTest, ReproducesTheGoldenExample) {
  const Routed routed = Route({.routed_scaling_factor = 2.446}, kLogits, kBias, 3);
  ASSERT_TRUE(routed.ok);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 6, 4}));
  EXPECT_NEAR(routed.weights[0], 0.421098843, 1e-7);
  EXPECT_NEAR(routed.weights[1], 0.880235825, 1e-7);
  EXPECT_NEAR(routed.weights[2], 1.144665332, 1e-7);
}

TEST(RouterTest, GroupsExcludeExpertsOutsideTheBestOnes) {
  const Routed routed = Route(
      {.routed_scaling_factor = 2.446, .num_expert_group = 2, .topk_group = 1}, kLogits, kBias, 3);
  ASSERT_TRUE(routed.ok);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 3, 0}));
  EXPECT_NEAR(routed.weights[0], 0.472783068, 1e-7);
  EXPECT_NEAR(routed.weights[1], 0.878970345, 1e-7);
  EXPECT_NEAR(routed.weights[2], 1.094246587, 1e-7);
}

TEST(RouterTest, WithoutRenormalisationWeightsAreTheScaledScores) {
  const Routed routed =
      Route({.renormalize = false, .routed_scaling_factor = 2.0}, kLogits, kBias, 2);
  ASSERT_EQ(routed.ids[0], 1);
  EXPECT_NEAR(routed.weights[0], 2.0 / (1.0 + std::exp(1.0)), 1e-7);
}

TEST(RouterTest, OneChosenExpertIsNotRenormalised) {
  const Routed routed = Route({}, kLogits, {}, 1);
  EXPECT_EQ(routed.ids[0], 2);
  EXPECT_NEAR(routed.weights[0], 1.0 / (1.0 + std::exp(-2.0)), 1e-7);
}

TEST(RouterTest, SoftmaxScoresSumToOneOverAllExperts) {
  const Routed routed = Route({.softmax = true, .renormalize = false}, kLogits, {}, 8);
  double sum = 0;
  for (const float weight : routed.weights) {
    sum += weight;
  }
  EXPECT_NEAR(sum, 1.0, 1e-6);
  EXPECT_EQ(routed.ids[0], 2);
  double total = 0;
  for (const float logit : kLogits) {
    total += std::exp(double{logit});
  }
  EXPECT_NEAR(routed.weights[0], std::exp(2.0) / total, 1e-7);
}

TEST(RouterTest, TiesGoToTheLowerIndex) {
  const Routed routed = Route({}, std::vector<float>(6, 0.5F), {}, 3);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 1, 2}));
}

TEST(RouterTest, RefusesScoresThatAreNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(Route({}, {0.0F, std::nanf(""), 1.0F}, {}, 1).ok);
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    EXPECT_FALSE(Route({}, {0.0F, 1.0F, 2.0F}, {0.0F, bad, 0.0F}, 1).ok);
    // Every group's score would be the mark of a group already taken.
    EXPECT_FALSE(Route({.num_expert_group = 2, .topk_group = 2}, {0.0F, 1.0F, 2.0F, 3.0F},
                       std::vector<float>(4, bad), 1)
                     .ok);
  }
  EXPECT_FALSE(Route({.softmax = true}, {0.0F, kInfinity, 1.0F}, {}, 1).ok);
  EXPECT_FALSE(Route({.softmax = true}, std::vector<float>(3, -kInfinity), {}, 1).ok);
}

TEST(RouterTest, InfiniteLogitsHaveTheirLimitsAsSigmoids) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Routed routed = Route({.renormalize = false}, {-kInfinity, 0.0F, kInfinity}, {}, 3);
  ASSERT_TRUE(routed.ok);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(routed.weights, (std::vector<float>{1.0F, 0.5F, 0.0F}));
}

TEST(RouterTest, KeepsAllGroupsWhereAsManyAreAsked) {
  for (const int64_t topk_group : {2, 3}) {
    const Routed routed =
        Route({.num_expert_group = 2, .topk_group = topk_group}, kLogits, kBias, 3);
    ASSERT_TRUE(routed.ok);
    EXPECT_EQ(routed.ids, Route({}, kLogits, kBias, 3).ids);
  }
}

}  // namespace
}  // namespace shoal

#include "coordinator/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Logits of the probabilities 0.1, 0.4, 0.2, 0.3 (ids 0 to 3).
std::vector<float> FourTokens() {
  return {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};
}

// Every token that 2000 draws produce: a kept token of probability p is missed with (1 - p)^2000,
// below 1e-90 for p = 0.1.
std::set<int32_t> Reachable(SamplingOptions options, const std::vector<float>& logits,
                            const std::vector<int32_t>& history = {}) {
  if (options.temperature == 0) {
    options.temperature = 1;
  }
  Sampler sampler(options);
  std::set<int32_t> ids;
  for (int i = 0; i < 2000; ++i) {
    ids.insert(sampler.Sample(logits, history));
  }
  return ids;
}

int32_t Greedy(const std::vector<float>& logits, const std::vector<int32_t>& history = {},
               double repetition_penalty = 1.0) {
  return Sampler({.repetition_penalty = repetition_penalty}).Sample(logits, history);
}

// The published outputs of the reference implementation (splitmix64.c, seed 1234567).
TEST(SplitMix64Test, EqualsTheReferenceSequence) {
  EXPECT_EQ(SplitMix64(1234567, 0), 6457827717110365317U);
  EXPECT_EQ(SplitMix64(1234567, 1), 3203168211198807973U);
  EXPECT_EQ(SplitMix64(1234567, 2), 9817491932198370423U);
}

TEST(SamplerTest, GreedyTakesTheLargestLogit) { EXPECT_EQ(Greedy({-1, 3, 2}), 1); }

TEST(SamplerTest, GreedyTakesTheLowestIdOnTies) { EXPECT_EQ(Greedy({1, 7, 7, 7}), 1); }

TEST(SamplerTest, GreedyNeverTakesNan) { EXPECT_EQ(Greedy({kNan, -5, kNan, -4}), 3); }

TEST(SamplerTest, AnswersZeroWhereNoTokenIsPossible) {
  EXPECT_EQ(Greedy({-kInf, kNan, -kInf}), 0);
  EXPECT_THAT(Reachable({}, {-kInf, kNan, -kInf}), ElementsAre(0));
}

TEST(SamplerTest, SamplingNeverTakesNanOrMinusInfinity) {
  EXPECT_THAT(Reachable({}, {kNan, 0, -kInf, 0}), ElementsAre(1, 3));
}

TEST(SamplerTest, WithoutCutsEveryTokenIsReachable) {
  EXPECT_THAT(Reachable({}, FourTokens()), ElementsAre(0, 1, 2, 3));
}

TEST(SamplerTest, TopKKeepsTheKLargest) {
  EXPECT_THAT(Reachable({.top_k = 2}, FourTokens()), ElementsAre(1, 3));
}

TEST(SamplerTest, TopKKeepsLowerIdsOnTies) {
  EXPECT_THAT(Reachable({.top_k = 2}, {0, 0, 0, 0}), ElementsAre(0, 1));
}

TEST(SamplerTest, TopKLargerThanTheVocabularyKeepsAll) {
  EXPECT_THAT(Reachable({.top_k = 100}, FourTokens()), ElementsAre(0, 1, 2, 3));
}

// 0.4 < 0.5, 0.4 + 0.3 reaches it.
TEST(SamplerTest, TopPKeepsTheSmallestSetThatReachesIt) {
  EXPECT_THAT(Reachable({.top_p = 0.5}, FourTokens()), ElementsAre(1, 3));
  EXPECT_THAT(Reachable({.top_p = 0.75}, FourTokens()), ElementsAre(1, 2, 3));
  EXPECT_THAT(Reachable({.top_p = 0.95}, FourTokens()), ElementsAre(0, 1, 2, 3));
}

TEST(SamplerTest, TopPAlwaysKeepsTheLikeliest) {
  EXPECT_THAT(Reachable({.top_p = 1e-9}, FourTokens()), ElementsAre(1));
}

TEST(SamplerTest, TopPThatIsReachedExactlyStopsThere) {
  EXPECT_THAT(Reachable({.top_p = 0.5}, {0, 0, 0, 0}), ElementsAre(0, 1));
}

// Top-k leaves 0.4 and 0.3, renormalised 4/7 = 0.571: top_p = 0.55 is reached by the first alone,
// which 0.4 of the whole distribution would not.
TEST(SamplerTest, TopPSeesWhatTopKLeft) {
  EXPECT_THAT(Reachable({.top_k = 2, .top_p = 0.55}, FourTokens()), ElementsAre(1));
  EXPECT_THAT(Reachable({.top_p = 0.55}, FourTokens()), ElementsAre(1, 3));
}

// 0.6 * 0.4 = 0.24: 0.3 stays, 0.2 goes.
TEST(SamplerTest, MinPIsRelativeToTheLikeliest) {
  EXPECT_THAT(Reachable({.min_p = 0.6}, FourTokens()), ElementsAre(1, 3));
  EXPECT_THAT(Reachable({.min_p = 0.49}, FourTokens()), ElementsAre(1, 2, 3));
  EXPECT_THAT(Reachable({.min_p = 1}, {0, 0, -1}), ElementsAre(0, 1));
}

// At temperature 0.5 probabilities are squared: 0.3^2 / 0.4^2 = 0.5625 < 0.6.
TEST(SamplerTest, TemperatureComesBeforeMinP) {
  EXPECT_THAT(Reachable({.temperature = 0.5, .min_p = 0.6}, FourTokens()), ElementsAre(1));
}

TEST(SamplerTest, TinyTemperatureIsGreedy) {
  EXPECT_THAT(Reachable({.temperature = 1e-300}, FourTokens()), ElementsAre(1));
}

TEST(SamplerTest, PenaltyDividesPositiveLogitsOfSeenTokens) {
  // 3 / 2 = 1.5 falls below 2; 3 / 1.4 = 2.14 does not.
  EXPECT_EQ(Greedy({3, 2}, {0}, 2.0), 1);
  EXPECT_EQ(Greedy({3, 2}, {0}, 1.4), 0);
}

TEST(SamplerTest, PenaltyMultipliesNegativeLogitsOfSeenTokens) {
  EXPECT_EQ(Greedy({-1, -1.5}, {0}, 2.0), 1);
  EXPECT_EQ(Greedy({-1, -1.5}, {0}, 1.4), 0);
}

TEST(SamplerTest, PenaltyCountsATokenOnce) { EXPECT_EQ(Greedy({3, 2}, {0, 0, 0}, 1.4), 0); }

TEST(SamplerTest, PenaltyIgnoresIdsOutsideTheVocabulary) {
  EXPECT_EQ(Greedy({3, 2}, {-1, 2, 1000}, 2.0), 0);
}

// The first draw of seed 1234567 is 0.350079...: in order of id the running sums are 0.1, 0.5.
TEST(SamplerTest, DrawComparesWithTheRunningSumInOrderOfId) {
  EXPECT_EQ(Sampler({.temperature = 1, .seed = 1234567}).Sample(FourTokens(), {}), 1);
  // Seed 0: 16294208416658607535 / 2^64 = 0.8833; sums 0.1, 0.5, 0.7, 1.0.
  EXPECT_EQ(Sampler({.temperature = 1, .seed = 0}).Sample(FourTokens(), {}), 3);
}

TEST(SamplerTest, SameSeedRepeatsAndAnotherSeedDiffers) {
  const std::vector<float> logits(64, 0.0F);
  const auto draw = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<int32_t> ids(32);
    for (int32_t& id : ids) {
      id = sampler.Sample(logits, {});
    }
    return ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

// 4000 draws of a token of probability 0.4: standard deviation 31, so 1600 +- 155 is five of them.
TEST(SamplerTest, FrequenciesFollowTheProbabilities) {
  Sampler sampler({.temperature = 1, .seed = 7});
  std::array<int, 4> counts{};
  for (int i = 0; i < 4000; ++i) {
    ++counts[sampler.Sample(FourTokens(), {})];
  }
  EXPECT_NEAR(counts[1], 1600, 155);
  EXPECT_NEAR(counts[3], 1200, 145);
}

TEST(ValidateSamplingTest, AcceptsTheDefaultsAndTheBorders) {
  EXPECT_THAT(ValidateSampling({}), IsOk());
  EXPECT_THAT(ValidateSampling({.top_p = 1, .min_p = 1}), IsOk());
}

TEST(ValidateSamplingTest, NamesFieldValueAndRange) {
  const auto refuses = [](const SamplingOptions& options, absl::string_view field,
                          absl::string_view value) {
    EXPECT_THAT(ValidateSampling(options),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(std::string(field)), HasSubstr(std::string(value)),
                               HasSubstr("must be"))));
  };
  refuses({.temperature = -0.5}, "temperature", "-0.5");
  refuses({.temperature = kInf}, "temperature", "inf");
  refuses({.temperature = kNan}, "temperature", "nan");
  refuses({.top_k = -3}, "top_k", "-3");
  refuses({.top_p = 0}, "top_p", "0");
  refuses({.top_p = 1.5}, "top_p", "1.5");
  refuses({.top_p = kNan}, "top_p", "nan");
  refuses({.min_p = -0.25}, "min_p", "-0.25");
  refuses({.min_p = 2}, "min_p", "2");
  refuses({.repetition_penalty = 0}, "repetition_penalty", "0");
  refuses({.repetition_penalty = kInf}, "repetition_penalty", "inf");
}

TEST(TopTokensTest, GivesProbabilitiesBestFirstAndLowIdsOnTies) {
  const std::vector<float> logits = {std::log(0.25F), std::log(0.5F), std::log(0.25F)};
  const std::vector<TokenProbability> best = TopTokens(logits, 2);
  ASSERT_EQ(best.size(), 2U);
  EXPECT_EQ(best[0].id, 1);
  EXPECT_EQ(best[1].id, 0);
  // The logits are floats: ln 0.5 is exact to 2^-25.
  EXPECT_NEAR(best[0].probability, 0.5, 1e-7);
  EXPECT_NEAR(best[1].probability, 0.25, 1e-7);
  EXPECT_EQ(best[0].logit, logits[1]);
}

TEST(TopTokensTest, NeverGivesMoreThanTheVocabulary) {
  EXPECT_EQ(TopTokens(std::vector<float>{0, 1}, 10).size(), 2U);
  EXPECT_THAT(TopTokens(std::vector<float>{0, 1}, 0), IsEmpty());
  EXPECT_THAT(TopTokens({}, 3), IsEmpty());
}

TEST(LogProbabilityTest, EqualsTheSoftmaxAlsoForHugeLogits) {
  EXPECT_NEAR(LogProbability(std::vector<float>{0, 0, 0, 0}, 2), -std::log(4.0), 1e-15);
  EXPECT_NEAR(LogProbability(std::vector<float>{1000, 999}, 1), -1 - std::log1p(std::exp(-1.0)),
              1e-12);
}

}  // namespace
}  // namespace shoal

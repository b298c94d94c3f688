#include "kernels/latent_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace shoal {
namespace {

struct Inputs {
  int64_t latent_size = 0;
  int64_t shared_size = 0;
  std::vector<float> query;
  std::vector<float> cache;

  Inputs(int64_t latent, int64_t shared, int64_t positions, float spread)
      : latent_size(latent), shared_size(shared) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    query.resize(static_cast<size_t>(latent + shared));
    cache.resize(static_cast<size_t>((latent + shared) * positions));
    for (float& value : query) {
      value = spread * normal(random);
    }
    for (float& value : cache) {
      value = normal(random);
    }
  }

  std::vector<float> Run(int64_t positions, double scale) const {
    std::vector<float> out(static_cast<size_t>(latent_size));
    LatentAttention({.latent_size = latent_size,
                     .shared_size = shared_size,
                     .num_positions = positions,
                     .scale = scale,
                     .query = query.data(),
                     .cache = cache.data(),
                     .out = out.data()});
    return out;
  }

  // Softmax over all positions at once, in double.
  std::vector<double> Expected(int64_t positions, double scale) const {
    const int64_t row = latent_size + shared_size;
    std::vector<double> scores;
    double maximum = -1e300;
    for (int64_t s = 0; s < positions; ++s) {
      double sum = 0;
      for (int64_t i = 0; i < row; ++i) {
        sum +=
            double{query[static_cast<size_t>(i)]} * double{cache[static_cast<size_t>(s * row + i)]};
      }
      scores.push_back(sum * scale);
      maximum = std::max(maximum, scores.back());
    }
    std::vector<double> out(static_cast<size_t>(latent_size));
    double total = 0;
    for (int64_t s = 0; s < positions; ++s) {
      const double weight = std::exp(scores[static_cast<size_t>(s)] - maximum);
      total += weight;
      for (int64_t i = 0; i < latent_size; ++i) {
        out[static_cast<size_t>(i)] += weight * double{cache[static_cast<size_t>(s * row + i)]};
      }
    }
    for (double& value : out) {
      value /= total;
    }
    return out;
  }
};

TEST(LatentAttentionTest, EqualsSoftmaxOverAllPositionsWithinFloatPrecision) {
  for (const int64_t positions : {1, 2, 63, 64, 65, 128, 300}) {
    const Inputs inputs(40, 24, positions, 0.5F);
    const std::vector<float> out = inputs.Run(positions, 0.125);
    const std::vector<double> expected = inputs.Expected(positions, 0.125);
    for (size_t i = 0; i < out.size(); ++i) {
      // Scores carry a few float roundings each, and a weighted mean keeps their relative size.
      EXPECT_NEAR(out[i], expected[i], 5e-6) << positions << " " << i;
    }
  }
}

TEST(LatentAttentionTest, LargeScoresNeitherOverflowNorVanish) {
  const Inputs inputs(16, 8, 200, 100.0F);
  const std::vector<float> out = inputs.Run(200, 1.0);
  const std::vector<double> expected = inputs.Expected(200, 1.0);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_NEAR(out[i], expected[i], 1e-3);
  }
}

TEST(LatentAttentionTest, OnePositionReturnsItsLatent) {
  const Inputs inputs(9, 3, 1, 1.0F);
  const std::vector<float> out = inputs.Run(1, 1.0);
  EXPECT_EQ(std::memcmp(out.data(), inputs.cache.data(), 9 * sizeof(float)), 0);
}

}  // namespace
}  // namespace shoal

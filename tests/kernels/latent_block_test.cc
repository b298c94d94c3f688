// The products of latent attention with every instruction set that this CPU can play, against the scalar ones, bit for bit;
// and heads together against each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <hwy/highway.h>

#include "kernels/latent_attention.h"

namespace shoal {
namespace {

class Inputs {
 public:
  Inputs(int64_t latent, int64_t shared, int64_t positions, int64_t heads, uint32_t seed)
      : random_(seed) {
    Fill(query, (latent + shared) * heads);
    Fill(cache, (latent + shared) * positions);
    Fill(out, latent * heads);
    args.latent_size = latent;
    args.shared_size = shared;
    args.num_positions = positions;
    args.num_heads = heads;
    args.scale = 0.07;
  }
  LatentAttentionArgs View(std::vector<float>& to) const {
    LatentAttentionArgs view = args;
    view.query = query.data();
    view.cache = cache.data();
    view.out = to.data();
    return view;
  }

 private:
  void Fill(std::vector<float>& values, int64_t count) {
    std::normal_distribution<float> normal;
    values.resize(static_cast<size_t>(count));
    std::generate(values.begin(), values.end(), [&] { return normal(random_); });
  }
  std::mt19937 random_;

 public:
  std::vector<float> query;
  std::vector<float> cache;
  std::vector<float> out;  // what weights are added to
  LatentAttentionArgs args;
};

template <typename T, typename Bits>
void ExpectSameBits(const T* a, const T* b, size_t size, const std::string& where) {
  for (size_t i = 0; i < size; ++i) {
    if (!std::isnan(a[i]) || !std::isnan(b[i])) {
      ASSERT_EQ(std::bit_cast<Bits>(a[i]), std::bit_cast<Bits>(b[i])) << where << ", element " << i;
    }
  }
}

// Scores and sums of a block, by the functions given.
struct Result {
  LatentScores scores = {};
  std::vector<float> out;
};
Result Run(const Inputs& inputs, const LatentBlock& block, decltype(&ScoreLatents) score,
           decltype(&AddLatents) add) {
  Result result;
  result.out = inputs.out;
  const LatentAttentionArgs args = inputs.View(result.out);
  score(args, block, result.scores);
  LatentWeights weights = {};
  for (int64_t h = 0; h < args.num_heads; ++h) {
    for (int64_t s = 0; s < block.count; ++s) {
      weights[h][s] = static_cast<float>(h + 1) * 0.1F - static_cast<float>(s) * 0.01F;
    }
  }
  add(args, block, weights);
  return result;
}

void ExpectScalarBits(const Inputs& inputs, const LatentBlock& block) {
  const Result expected = Run(inputs, block, ScalarScoreLatents, ScalarAddLatents);
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    const Result result = Run(inputs, block, ScoreLatents, AddLatents);
    const std::string where = std::string(hwy::TargetName(target)) + ", " +
                              std::to_string(inputs.args.latent_size) + "+" +
                              std::to_string(inputs.args.shared_size) + ", " +
                              std::to_string(inputs.args.num_heads) + " heads, " +
                              std::to_string(block.count) + " positions";
    ExpectSameBits<double, uint64_t>(result.scores[0], expected.scores[0],
                                     kMostLatentHeads * kLatentBlock, where);
    ExpectSameBits<float, uint32_t>(result.out.data(), expected.out.data(), expected.out.size(),
                                    where);
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(LatentBlockTest, EverySizeHasTheScalarBits) {
  uint32_t seed = 0;
  for (const auto& [latent, shared] : std::vector<std::pair<int64_t, int64_t>>{
           {16, 0}, {16, 16}, {40, 24}, {48, 16}, {9, 3}, {64, 8}, {80, 16}, {512, 64}}) {
    for (int64_t heads = 1; heads <= kMostLatentHeads; ++heads) {
      for (const int64_t count : {1, 2, 3, 4, 7, 63, 64}) {
        ExpectScalarBits(Inputs(latent, shared, 70, heads, ++seed), {5, count});
      }
    }
  }
}

TEST(LatentBlockTest, ValuesThatAreNotFiniteOrTinySpoilTheSameElements) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float special : {0.0F, -0.0F, kInfinity, -kInfinity, std::nanf(""), 1e-42F, 3e38F}) {
    for (auto place : {&Inputs::query, &Inputs::cache, &Inputs::out}) {
      Inputs inputs(64, 16, 20, 5, 3);
      (inputs.*place)[33] = special;
      ExpectScalarBits(inputs, {0, 20});
      (inputs.*place).assign((inputs.*place).size(), special);
      ExpectScalarBits(inputs, {0, 20});
    }
  }
}

TEST(LatentBlockTest, HeadsTogetherHaveTheBitsOfEachAlone) {
  for (const int64_t positions : {1, 64, 65, 200}) {
    const Inputs inputs(48, 16, positions, kMostLatentHeads, 8);
    std::vector<float> together(inputs.out.size());
    LatentAttention(inputs.View(together));
    std::vector<float> alone(inputs.out.size());
    for (int64_t h = 0; h < kMostLatentHeads; ++h) {
      LatentAttentionArgs args = inputs.View(alone);
      args.num_heads = 1;
      args.query += h * 64;
      args.out += h * 48;
      LatentAttention(args);
    }
    ExpectSameBits<float, uint32_t>(together.data(), alone.data(), alone.size(), "heads");
  }
}

}  // namespace
}  // namespace shoal

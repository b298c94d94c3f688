#include "kernels/delta_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace shoal {
namespace {

// Two tokens of one head with head_dim 2; inputs after the convolution. Expected values: model
// architecture notes, golden numbers, computed in double from the published formulas.
struct Golden {
  std::vector<float> q = {1, 2, 0.5, -1};
  std::vector<float> k = {2, 1, -1, 3};
  std::vector<float> v = {1, -1, 0.5, 2};
  std::vector<float> f = {0.2F, -0.3F, 1, 0};
  std::vector<float> dt_bias = {0.1F, -0.2F};
  double a_log = 0.5;
  std::vector<float> beta = {0.5F, 0.7310585786F};  // sigmoid(0), sigmoid(1)
};

TEST(DeltaAttentionTest, ReproducesTheGoldenTwoTokenExample) {
  Golden g;
  std::vector<float> decay(4);
  for (size_t t = 0; t < 2; ++t) {
    L2Normalize(std::span(g.q).subspan(2 * t, 2), 1.0 / std::sqrt(2.0));
    L2Normalize(std::span(g.k).subspan(2 * t, 2), 1.0);
    const float z[2] = {g.f[2 * t] + g.dt_bias[0], g.f[2 * t + 1] + g.dt_bias[1]};
    DecayGate(g.a_log, z, std::span(decay).subspan(2 * t, 2));
  }
  EXPECT_NEAR(std::log(decay[0]), -1.408593664, 1e-6);
  EXPECT_NEAR(std::log(decay[1]), -0.781620808, 1e-6);
  EXPECT_NEAR(std::log(decay[2]), -2.28732926, 1e-6);
  EXPECT_NEAR(std::log(decay[3]), -0.986164277, 1e-6);

  const std::vector<float> zero(4, 0.0F);
  std::vector<float> state(4);
  std::vector<float> out(4);
  DeltaHeadArgs args;
  args.num_tokens = 2;
  args.head_dim = 2;
  args.stride = 2;
  args.q = g.q.data();
  args.k = g.k.data();
  args.v = g.v.data();
  args.decay = decay.data();
  args.beta = g.beta.data();
  args.beta_stride = 1;
  args.state_in = zero.data();
  args.state_out = state.data();
  args.out = out.data();
  DeltaAttentionHead(args);
  EXPECT_NEAR(out[0], 0.282842656, 1e-6);
  EXPECT_NEAR(out[1], -0.282842656, 1e-6);
  EXPECT_NEAR(out[2], -0.261117899, 1e-6);
  EXPECT_NEAR(out[3], -1.018234038, 1e-6);
  // The notes give S by key rows; ours is [value, key].
  EXPECT_NEAR(state[0], -0.055208827, 1e-6);
  EXPECT_NEAR(state[2], -0.522743696, 1e-6);
  EXPECT_NEAR(state[1], 0.385259401, 1e-6);
  EXPECT_NEAR(state[3], 1.348598171, 1e-6);

  const std::vector<float> weight = {1.5, 0.5};
  const std::vector<float> gate = {0.3F, -0.7F};
  std::vector<float> normed(2);
  GatedHeadNorm(std::span(out).subspan(2, 2), weight, 1e-5, gate, normed);
  EXPECT_NEAR(normed[0], -0.302696728, 1e-6);
  EXPECT_NEAR(normed[1], -0.227270595, 1e-6);
}

TEST(DeltaAttentionTest, ChunksOfAnySizeGiveTheSameBits) {
  constexpr int64_t kTokens = 13;
  constexpr int64_t kDim = 24;  // one vector and a half
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> q(kTokens * kDim);
  std::vector<float> k(q.size());
  std::vector<float> v(q.size());
  std::vector<float> decay(q.size());
  std::vector<float> beta(kTokens);
  for (size_t i = 0; i < q.size(); ++i) {
    q[i] = normal(random);
    k[i] = 0.2F * normal(random);
    v[i] = normal(random);
    decay[i] = std::exp(-std::fabs(normal(random)));
  }
  for (float& b : beta) {
    b = 0.5F;
  }
  const auto run = [&](int64_t chunk) {
    std::vector<float> state(kDim * kDim, 0.25F);
    std::vector<float> out(q.size());
    for (int64_t t = 0; t < kTokens; t += chunk) {
      std::vector<float> next(state.size());
      DeltaHeadArgs args;
      args.num_tokens = std::min(chunk, kTokens - t);
      args.head_dim = kDim;
      args.stride = kDim;
      args.q = q.data() + t * kDim;
      args.k = k.data() + t * kDim;
      args.v = v.data() + t * kDim;
      args.decay = decay.data() + t * kDim;
      args.beta = beta.data() + t;
      args.beta_stride = 1;
      args.state_in = state.data();
      args.state_out = next.data();
      args.out = out.data() + t * kDim;
      DeltaAttentionHead(args);
      state = next;
    }
    out.insert(out.end(), state.begin(), state.end());
    return out;
  };
  const std::vector<float> whole = run(kTokens);
  for (const int64_t chunk : {1, 2, 5}) {
    const std::vector<float> pieces = run(chunk);
    EXPECT_EQ(std::memcmp(whole.data(), pieces.data(), whole.size() * 4), 0) << chunk;
  }
}

TEST(ShortConvTest, ReproducesTheGoldenExampleAndKeepsItsTail) {
  const std::vector<float> taps = {0.1F, 0.2F, 0.3F, 0.4F};
  const std::vector<float> x = {1, 2, 3};
  const std::vector<float> tail_in(3, 0.0F);
  std::vector<float> tail_out(3);
  std::vector<float> out(3);
  ShortConv({.num_tokens = 3,
             .channels = 1,
             .kernel = 4,
             .x = x.data(),
             .taps = taps.data(),
             .tail_in = tail_in.data(),
             .tail_out = tail_out.data(),
             .out = out.data()},
            0, 1);
  EXPECT_NEAR(out[0], 0.239475064, 1e-7);
  EXPECT_NEAR(out[1], 0.825286116, 1e-7);
  EXPECT_NEAR(out[2], 1.761594156, 2e-7);
  EXPECT_EQ(tail_out, x);
}

TEST(ShortConvTest, AChunkShorterThanTheTailShiftsIt) {
  const std::vector<float> taps(8, 0.5F);
  const std::vector<float> x = {7, 70};
  const std::vector<float> tail_in = {1, 10, 2, 20, 3, 30};
  std::vector<float> tail_out(6);
  std::vector<float> out(2);
  ShortConv({.num_tokens = 1,
             .channels = 2,
             .kernel = 4,
             .x = x.data(),
             .taps = taps.data(),
             .tail_in = tail_in.data(),
             .tail_out = tail_out.data(),
             .out = out.data()},
            0, 2);
  EXPECT_EQ(tail_out, (std::vector<float>{2, 20, 3, 30, 7, 70}));
}

TEST(L2NormalizeTest, AddsEpsilonInsideTheRoot) {
  std::vector<float> x = {3e-3F, 4e-3F};
  L2Normalize(x, 2.0);
  const double length = std::sqrt(25e-6 + 1e-6);
  EXPECT_NEAR(x[0], 2 * 3e-3 / length, 1e-6);
  EXPECT_NEAR(x[1], 2 * 4e-3 / length, 1e-6);
}

}  // namespace
}  // namespace shoal

// The recurrence with every instruction set that this CPU can play, against the scalar one, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <hwy/highway.h>

#include "kernels/delta_attention.h"

namespace shoal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Head {
  Head(int64_t dim, int64_t num_tokens, uint32_t seed)
      : head_dim(dim), tokens(num_tokens), random(seed) {
    for (std::vector<float>* values : {&q, &k, &v, &decay}) {
      Fill(values, tokens * head_dim);
    }
    for (float& value : decay) {
      value = std::exp(-std::fabs(value));
    }
    Fill(&beta, tokens);
    Fill(&state, head_dim * head_dim);
  }
  void Fill(std::vector<float>* values, int64_t count) {
    std::normal_distribution<float> normal;
    values->resize(static_cast<size_t>(count));
    std::generate(values->begin(), values->end(), [&] { return normal(random); });
  }
  int64_t head_dim;
  int64_t tokens;
  std::mt19937 random;
  std::vector<float> q, k, v, decay, beta, state;
};

// The outputs and then the state.
std::vector<float> Run(void (*advance)(const DeltaHeadArgs&), const Head& head, bool in_place) {
  std::vector<float> state = head.state;
  std::vector<float> next(state.size());
  std::vector<float> out(head.q.size());
  DeltaHeadArgs args;
  args.num_tokens = head.tokens;
  args.head_dim = head.head_dim;
  args.stride = head.head_dim;
  args.q = head.q.data();
  args.k = head.k.data();
  args.v = head.v.data();
  args.decay = head.decay.data();
  args.beta = head.beta.data();
  args.beta_stride = 1;
  args.state_in = state.data();
  args.state_out = in_place ? state.data() : next.data();
  args.out = out.data();
  advance(args);
  const std::vector<float>& after = in_place ? state : next;
  out.insert(out.end(), after.begin(), after.end());
  return out;
}

size_t DifferentBits(const std::vector<float>& a, const std::vector<float>& b) {
  size_t different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const bool same = std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]);
    different += same || (std::isnan(a[i]) && std::isnan(b[i])) ? 0 : 1;
  }
  return different;
}

void ExpectScalarBits(const Head& head) {
  const std::vector<float> expected = Run(ScalarDeltaAttentionHead, head, false);
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    for (const bool in_place : {false, true}) {
      EXPECT_EQ(DifferentBits(Run(DeltaAttentionHead, head, in_place), expected), 0)
          << hwy::TargetName(target) << ", head_dim " << head.head_dim << ", " << head.tokens
          << " tokens";
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(DeltaHeadTest, EverySizeHasTheScalarBits) {
  for (const int64_t head_dim : {1, 7, 8, 15, 16, 24, 32, 48, 64, 100, 112, 128, 256}) {
    for (const int64_t tokens : {1, 2, 9}) {
      ExpectScalarBits(Head(head_dim, tokens, static_cast<uint32_t>(head_dim + tokens)));
    }
  }
}

TEST(DeltaHeadTest, ValuesThatAreNotFiniteOrTinySpoilTheSameElements) {
  const float specials[] = {
      0.0F,   -0.0F,   kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
      1e-42F, -1e-42F, 1e-38F,    3e38F,      -3e38F};
  for (const float special : specials) {
    for (int place = 0; place < 5; ++place) {
      Head head(64, 3, static_cast<uint32_t>(place));
      std::vector<float>* places[] = {&head.q, &head.k, &head.v, &head.decay, &head.state};
      (*places[place])[37] = special;
      ExpectScalarBits(head);
      places[place]->assign(places[place]->size(), special);
      ExpectScalarBits(head);
    }
  }
}

// Products that round to -0, which a sum of lanes keeps only if no lane was added to without need.
TEST(DeltaHeadTest, ZerosKeepTheirSigns) {
  for (const int64_t head_dim : {8, 16, 24, 128}) {
    Head head(head_dim, 2, 5);
    head.state.assign(head.state.size(), -1e-30F);
    head.k.assign(head.k.size(), 1e-30F);
    head.q.assign(head.q.size(), 1e-30F);
    head.v.assign(head.v.size(), -0.0F);
    head.beta.assign(head.beta.size(), 1e-30F);
    ExpectScalarBits(head);
  }
}

}  // namespace
}  // namespace shoal

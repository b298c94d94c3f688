#include <cstddef>
#include <cstdint>

#include "kernels/delta_attention.h"
#include "kernels/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_head.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/constant_loop-inl.h"
#include "kernels/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows of the state at once: enough that the folds and the chains of sums of some hide those of others. Half the
// registers hold their sums.
constexpr size_t kRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;

// What a token gives one head.
struct Token {
  const float* q;
  const float* k;
  const float* decay;
};

struct RowSums {
  hn::Vec<FloatLanes> lanes[kRows][kLaneVectors];

  HWY_INLINE RowSums() {
    ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
      ForConstants<kLaneVectors>([&](auto v)
                                     SHOAL_INLINE_LAMBDA { lanes[r][v] = hn::Zero(FloatLanes()); });
    });
  }
};

// Sums of rows * decay with k. Asks for the rows behind these: a state lies in one piece, which the processor does not
// see by itself in kRows rows beside each other.
HWY_INLINE RowSums Predict(const float* rows, const Token& token, int64_t n) {
  const FloatLanes d;
  RowSums sums;
  for (int64_t i = 0; i < n; i += kLanes) {
    ForConstants<kLaneVectors>([&](auto v) SHOAL_INLINE_LAMBDA {
      const int64_t at = i + static_cast<int64_t>(v * kLaneWidth);
      const auto decay = hn::LoadU(d, token.decay + at);
      const auto k = hn::LoadU(d, token.k + at);
      ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
        const float* row = rows + static_cast<int64_t>(r) * n + at;
        hwy::Prefetch(row + kRows * n);
        const auto decayed = hn::Mul(hn::LoadU(d, row), decay);
        sums.lanes[r][v] = hn::MulAdd(decayed, k, sums.lanes[r][v]);
      });
    });
  }
  return sums;
}

// to = rows * decay + delta * k, and its sums with q. To decay twice is cheaper than to keep what Predict had.
HWY_INLINE RowSums Update(const float* rows, const Token& token, const float* delta, int64_t n,
                          float* to) {
  const FloatLanes d;
  RowSums sums;
  for (int64_t i = 0; i < n; i += kLanes) {
    ForConstants<kLaneVectors>([&](auto v) SHOAL_INLINE_LAMBDA {
      const int64_t at = i + static_cast<int64_t>(v * kLaneWidth);
      const auto decay = hn::LoadU(d, token.decay + at);
      const auto k = hn::LoadU(d, token.k + at);
      const auto q = hn::LoadU(d, token.q + at);
      ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
        const int64_t from = static_cast<int64_t>(r) * n + at;
        const auto decayed = hn::Mul(hn::LoadU(d, rows + from), decay);
        const auto row = hn::MulAdd(hn::Set(d, delta[r]), k, decayed);
        hn::StoreU(row, d, to + from);
        sums.lanes[r][v] = hn::MulAdd(row, q, sums.lanes[r][v]);
      });
    });
  }
  return sums;
}

// All tokens, kRows rows of the state after the other: rows do not meet, so these stay in the nearest cache.
void Advance(const DeltaHeadArgs& args) {
#if HWY_NATIVE_FMA
  const int64_t n = args.head_dim;
  for (int64_t first = 0; first < n; first += kRows) {
    float* to = args.state_out + first * n;
    for (int64_t t = 0; t < args.num_tokens; ++t) {
      const int64_t at = t * args.stride;
      const Token token{args.q + at, args.k + at, args.decay + at};
      const float* rows = t == 0 ? args.state_in + first * n : to;
      const float beta = args.beta[t * args.beta_stride];
      const RowSums predicted = Predict(rows, token, n);
      float delta[kRows];
      ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
        delta[r] =
            beta * (args.v[at + first + static_cast<int64_t>(r)] - FoldVectors(predicted.lanes[r]));
      });
      const RowSums read = Update(rows, token, delta, n, to);
      ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
        args.out[at + first + static_cast<int64_t>(r)] = FoldVectors(read.lanes[r]);
      });
    }
  }
#else
  ScalarDeltaAttentionHead(args);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(Advance);

}  // namespace

void DeltaAttentionHead(const DeltaHeadArgs& args) {
  if (args.head_dim % kLanes == 0) {
    HWY_DYNAMIC_DISPATCH(Advance)(args);
  } else {
    ScalarDeltaAttentionHead(args);
  }
}

}  // namespace shoal
#endif  // HWY_ONCE

#include <cstddef>
#include <cstdint>

#include "kernels/lanes.h"
#include "kernels/latent_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/latent_block.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/constant_loop-inl.h"
#include "kernels/fold_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Heads and positions whose sums are in registers at the same time: what is loaded of one is used for all of the other.
// With 16 registers as many as hide the time that a sum takes.
constexpr size_t kTile = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
// Vectors of an output at the same time.
constexpr size_t kOutVectors = 4;

template <size_t kHeads, size_t kPositions>
HWY_INLINE void ScoreTile(const LatentAttentionArgs& args, int64_t head, const float* rows,
                          int64_t position, LatentScores& scores) {
  const FloatLanes d;
  const int64_t n = args.row_size();
  const float* query = args.query + head * n;
  hn::Vec<FloatLanes> sums[kHeads][kPositions][kLaneVectors];
  ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
    ForConstants<kPositions>([&](auto s) SHOAL_INLINE_LAMBDA {
      ForConstants<kLaneVectors>([&](auto v) SHOAL_INLINE_LAMBDA { sums[h][s][v] = hn::Zero(d); });
    });
  });
  for (int64_t i = 0; i < n; i += kLanes) {
    ForConstants<kLaneVectors>([&](auto v) SHOAL_INLINE_LAMBDA {
      const int64_t at = i + static_cast<int64_t>(v * kLaneWidth);
      ForConstants<kPositions>([&](auto s) SHOAL_INLINE_LAMBDA {
        const auto row = hn::LoadU(d, rows + static_cast<int64_t>(s) * n + at);
        ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
          const auto q = hn::LoadU(d, query + static_cast<int64_t>(h) * n + at);
          sums[h][s][v] = hn::MulAdd(q, row, sums[h][s][v]);
        });
      });
    });
  }
  ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
    ForConstants<kPositions>([&](auto s) SHOAL_INLINE_LAMBDA {
      scores[head + static_cast<int64_t>(h)][position + static_cast<int64_t>(s)] =
          args.scale * double{FoldVectors(sums[h][s])};
    });
  });
}

template <size_t kHeads>
HWY_INLINE void ScoreHeads(const LatentAttentionArgs& args, int64_t head, const LatentBlock& block,
                           LatentScores& scores) {
  const float* rows = args.cache + block.begin * args.row_size();
  int64_t s = 0;
  for (; s + static_cast<int64_t>(kTile) <= block.count; s += kTile) {
    ScoreTile<kHeads, kTile>(args, head, rows + s * args.row_size(), s, scores);
  }
  for (; s < block.count; ++s) {
    ScoreTile<kHeads, 1>(args, head, rows + s * args.row_size(), s, scores);
  }
}

template <size_t kHeads, size_t kVectors>
HWY_INLINE void AddTile(const LatentAttentionArgs& args, int64_t head, const LatentBlock& block,
                        const LatentWeights& weights, int64_t r) {
  const FloatLanes d;
  float* out = args.out + head * args.latent_size + r;
  const auto offset = [&args](size_t h, size_t v) SHOAL_INLINE_LAMBDA {
    return static_cast<int64_t>(h) * args.latent_size + static_cast<int64_t>(v * kLaneWidth);
  };
  hn::Vec<FloatLanes> sums[kHeads][kVectors];
  ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
    ForConstants<kVectors>(
        [&](auto v) SHOAL_INLINE_LAMBDA { sums[h][v] = hn::LoadU(d, out + offset(h, v)); });
  });
  const float* latents = args.cache + block.begin * args.row_size() + r;
  for (int64_t s = 0; s < block.count; ++s) {
    hn::Vec<FloatLanes> latent[kVectors];
    ForConstants<kVectors>([&](auto v) SHOAL_INLINE_LAMBDA {
      latent[v] = hn::LoadU(d, latents + s * args.row_size() + offset(0, v));
    });
    ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
      const auto weight = hn::Set(d, weights[head + static_cast<int64_t>(h)][s]);
      ForConstants<kVectors>([&](auto v) SHOAL_INLINE_LAMBDA {
        sums[h][v] = hn::MulAdd(weight, latent[v], sums[h][v]);
      });
    });
  }
  ForConstants<kHeads>([&](auto h) SHOAL_INLINE_LAMBDA {
    ForConstants<kVectors>(
        [&](auto v) SHOAL_INLINE_LAMBDA { hn::StoreU(sums[h][v], d, out + offset(h, v)); });
  });
}

template <size_t kHeads>
HWY_INLINE void AddHeads(const LatentAttentionArgs& args, int64_t head, const LatentBlock& block,
                         const LatentWeights& weights) {
  constexpr auto kWidth = static_cast<int64_t>(kLaneWidth);
  constexpr auto kTileWidth = static_cast<int64_t>(kOutVectors) * kWidth;
  int64_t r = 0;
  for (; r + kTileWidth <= args.latent_size; r += kTileWidth) {
    AddTile<kHeads, kOutVectors>(args, head, block, weights, r);
  }
  for (; r < args.latent_size; r += kWidth) {
    AddTile<kHeads, 1>(args, head, block, weights, r);
  }
}

void Score(const LatentAttentionArgs& args, const LatentBlock& block, LatentScores& scores) {
#if HWY_NATIVE_FMA
  int64_t head = 0;
  for (; head + static_cast<int64_t>(kTile) <= args.num_heads; head += kTile) {
    ScoreHeads<kTile>(args, head, block, scores);
  }
  for (; head < args.num_heads; ++head) {
    ScoreHeads<1>(args, head, block, scores);
  }
#else
  ScalarScoreLatents(args, block, scores);
#endif
}

void Add(const LatentAttentionArgs& args, const LatentBlock& block, const LatentWeights& weights) {
#if HWY_NATIVE_FMA
  int64_t head = 0;
  for (; head + static_cast<int64_t>(kTile) <= args.num_heads; head += kTile) {
    AddHeads<kTile>(args, head, block, weights);
  }
  for (; head < args.num_heads; ++head) {
    AddHeads<1>(args, head, block, weights);
  }
#else
  ScalarAddLatents(args, block, weights);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(Score);
HWY_EXPORT(Add);

}  // namespace

void ScoreLatents(const LatentAttentionArgs& args, const LatentBlock& block, LatentScores& scores) {
  if (args.row_size() % kLanes == 0) {
    HWY_DYNAMIC_DISPATCH(Score)(args, block, scores);
  } else {
    ScalarScoreLatents(args, block, scores);
  }
}

void AddLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                const LatentWeights& weights) {
  if (args.latent_size % kLanes == 0) {
    HWY_DYNAMIC_DISPATCH(Add)(args, block, weights);
  } else {
    ScalarAddLatents(args, block, weights);
  }
}

}  // namespace shoal
#endif  // HWY_ONCE

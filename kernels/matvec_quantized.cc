#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/matvec_kernels.h"

// Also for CPUs with the dot products of VNNI.
#define HWY_WANT_AVX3_DL
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matvec_quantized.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/constant_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::ScalableTag<double>;
using F32 = hn::Rebind<float, F64>;
using I32 = hn::Repartition<int32_t, F64>;
using I16 = hn::Repartition<int16_t, F64>;

// A row's two sums over a group, of products with the low and with the high halves of activations, are a vector of
// int32 each. As many rows as a vector has doubles are taken at once: their vectors then add up to one of int32.
constexpr size_t kRows = hn::MaxLanes(F64());
constexpr size_t kStep = hn::MaxLanes(I16());
constexpr size_t kHalfGroup = kTrunkGroup / 2;
constexpr int64_t kBlockOfX =
    16;  // rows of activations that share a group of weights once it is widened

// Rows of kQ8 are int8_t here, those of kQ4 uint8_t. Nibbles are weights plus kZero; to subtract it from every one of
// them would be more work than to subtract what it comes to from their sum.
template <typename T>
constexpr int64_t kGroupBytes = kTrunkGroup;
template <>
inline constexpr int64_t kGroupBytes<uint8_t> = kTrunkGroup / 2;
template <typename T>
constexpr int kZero = 0;
template <>
inline constexpr int kZero<uint8_t> = 8;

// Columns i... and kHalfGroup + i... of a group of one row of weights: bytes, nibbles, or int16 already.
struct Columns {
  hn::Vec<I16> first;
  hn::Vec<I16> second;
};
HWY_INLINE Columns LoadColumns(const int8_t* group, size_t i) {
  const hn::Rebind<int8_t, I16> bytes;
  return {hn::PromoteTo(I16(), hn::LoadU(bytes, group + i)),
          hn::PromoteTo(I16(), hn::LoadU(bytes, group + kHalfGroup + i))};
}
HWY_INLINE Columns LoadColumns(const uint8_t* group, size_t i) {
  const I16 d;
  const hn::Rebind<uint8_t, I16> bytes;
  const auto both = hn::PromoteTo(d, hn::LoadU(bytes, group + i));
  return {hn::And(both, hn::Set(d, 15)), hn::ShiftRight<4>(both)};
}
HWY_INLINE Columns LoadColumns(const int16_t* group, size_t i) {
  return {hn::LoadU(I16(), group + i), hn::LoadU(I16(), group + kHalfGroup + i)};
}

// Lanes 2 i and 2 i + 1 of every block of four: parts of the sum of the lanes of a, and of b.
HWY_INLINE hn::Vec<I32> AddNeighbours(hn::Vec<I32> a, hn::Vec<I32> b) {
  return hn::Add(hn::InterleaveLower(I32(), a, b), hn::InterleaveUpper(I32(), a, b));
}
// The same with pairs of lanes.
HWY_INLINE hn::Vec<I32> AddNeighbouringPairs(hn::Vec<I32> a, hn::Vec<I32> b) {
  const I32 d;
  const hn::Repartition<int64_t, I32> pairs;
  const auto pairs_of_a = hn::BitCast(pairs, a);
  const auto pairs_of_b = hn::BitCast(pairs, b);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, pairs_of_a, pairs_of_b)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, pairs_of_a, pairs_of_b)));
}

// One vector of the blocks' sums: vector i of `vectors` gives block i.
HWY_INLINE hn::Vec<I32> SumBlocks(const hn::Vec<I32>* vectors) {
  const I32 d;
  if constexpr (kRows == 2) {
    return vectors[0];
  } else {
    const auto halves = [d](hn::Vec<I32> a, hn::Vec<I32> b) SHOAL_INLINE_LAMBDA {
      return hn::Add(hn::ConcatLowerLower(d, b, a), hn::ConcatUpperUpper(d, b, a));
    };
    if constexpr (kRows == 4) {
      return halves(vectors[0], vectors[1]);
    } else {
      const auto even = halves(vectors[0], vectors[2]);
      const auto odd = halves(vectors[1], vectors[3]);
      return hn::Add(hn::OddEvenBlocks(odd, even),
                     hn::SwapAdjacentBlocks(hn::OddEvenBlocks(even, odd)));
    }
  }
}

// Adds products of neighbouring lanes of int16 to sums in int32, in `sum` and, where that takes two vectors, in `more`.
HWY_INLINE void AddProducts(hn::Vec<I16> a, hn::Vec<I16> b, hn::Vec<I32>* sum, hn::Vec<I32>* more) {
#if HWY_TARGET == HWY_AVX3_DL
  // One instruction of VNNI, which this target implies but which Highway 1.0 does not use.
  (void)more;
  asm("vpdpwssd %2, %1, %0" : "+v"(sum->raw) : "v"(a.raw), "v"(b.raw));
#else
  *sum = hn::ReorderWidenMulAccumulate(I32(), a, b, *sum, *more);
#endif
}

// Sums of products of a group of one row with the low halves (even lanes) and high halves (odd lanes).
template <typename T>
HWY_INLINE hn::Vec<I32> GroupDot(const T* weights, const int16_t* low, const int16_t* high) {
  const I16 d;
  const I32 d32;
  auto low_sum = hn::Zero(d32);
  auto high_sum = hn::Zero(d32);
  auto more_low = hn::Zero(d32);  // used where a vector of products needs two of sums
  auto more_high = hn::Zero(d32);
  ForConstants<kHalfGroup / kStep>([&](auto step) SHOAL_INLINE_LAMBDA {
    constexpr size_t kFirst = decltype(step)::value * kStep;
    constexpr size_t kSecond = kHalfGroup + kFirst;
    const Columns w = LoadColumns(weights, kFirst);
    AddProducts(w.first, hn::LoadU(d, low + kFirst), &low_sum, &more_low);
    AddProducts(w.first, hn::LoadU(d, high + kFirst), &high_sum, &more_high);
    AddProducts(w.second, hn::LoadU(d, low + kSecond), &low_sum, &more_low);
    AddProducts(w.second, hn::LoadU(d, high + kSecond), &high_sum, &more_high);
  });
  return AddNeighbours(hn::RearrangeToOddPlusEven(low_sum, more_low),
                       hn::RearrangeToOddPlusEven(high_sum, more_high));
}

// Products of kRows rows with one row of activations over a group. Exact.
template <typename T>
HWY_INLINE hn::Vec<F64> GroupDots(const T* const* weights, int64_t offset, const int16_t* low,
                                  const int16_t* high) {
  hn::Vec<I32> blocks[kRows / 2];
  ForConstants<kRows / 2>([&](auto i) SHOAL_INLINE_LAMBDA {
    const auto a = GroupDot(weights[2 * i] + offset, low, high);
    const auto b = GroupDot(weights[2 * i + 1] + offset, low, high);
    blocks[i] = AddNeighbouringPairs(a, b);
  });
  const auto sums = SumBlocks(blocks);
  const hn::Half<I32> half;
  const auto low_sum = hn::PromoteTo(F64(), hn::LowerHalf(half, hn::ConcatEven(I32(), sums, sums)));
  const auto high_sum = hn::PromoteTo(F64(), hn::LowerHalf(half, hn::ConcatOdd(I32(), sums, sums)));
  return hn::MulAdd(high_sum, hn::Set(F64(), 1 << kTrunkLowBits), low_sum);
}

// HalfToFloat, for kRows rows' scales.
HWY_INLINE hn::Vec<F64> WidenScales(const uint16_t* halves) {
  const F32 d;
  const hn::Rebind<uint16_t, F64> narrow;
  const hn::Rebind<uint32_t, F64> words;
  const auto bits = hn::PromoteTo(words, hn::LoadU(narrow, halves));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(words, 0x7FFF)));
  const auto finite = hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112F));
  const auto largest = hn::Set(words, 0x7C00);
  const auto exponent =
      hn::IfThenElseZero(hn::Eq(hn::And(bits, largest), largest), hn::Set(words, 0x7F800000));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(words, 0x8000)));
  const auto all = hn::Or(hn::Or(hn::BitCast(words, finite), exponent), sign);
  return hn::PromoteTo(F64(), hn::BitCast(d, all));
}

// kRows rows of weights from `row` on. The last rows of a range may be fewer: its last row is then taken again, which
// costs less code than to leave lanes out, and is not written.
template <typename T>
struct RowBlock {
  RowBlock(const Matrix& w, int64_t row, int64_t row_end) {
    for (size_t r = 0; r < kRows; ++r) {
      rows[r] = std::min(row + static_cast<int64_t>(r), row_end - 1);
      values[r] = static_cast<const T*>(w.values) + rows[r] * RowValueBytes(w.type, w.cols);
      scales[r] = w.scales + rows[r] * ScalesPerRow(w.type, w.cols);
    }
  }
  HWY_INLINE hn::Vec<F64> Scales(int64_t group) const {
    alignas(16) uint16_t halves[kRows];
    ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA { halves[r] = scales[r][group]; });
    return WidenScales(halves);
  }
  int64_t rows[kRows];
  const T* values[kRows];
  const uint16_t* scales[kRows];
};

// acc = fma(dots, weight_scale * x_scale, acc), every row for itself. Fused or not is the same: dots are at most 2^41 and
// the scales have 11 bits, so that products are exact.
HWY_INLINE hn::Vec<F64> AddGroup(hn::Vec<F64> dots, hn::Vec<F64> weight_scales, double x_scale,
                                 hn::Vec<F64> acc) {
  return hn::MulAdd(dots, hn::Mul(weight_scales, hn::Set(F64(), x_scale)), acc);
}

// kRows sums, of which the first `count` are written to out[0], out[1], ...
HWY_INLINE void StoreRounded(hn::Vec<F64> acc, int64_t count, float* out) {
  alignas(64) double sums[kRows];
  hn::Store(acc, F64(), sums);
  for (int64_t r = 0; r < std::min<int64_t>(kRows, count); ++r) {
    out[r] = static_cast<float>(sums[r]);
  }
}

// The last group of rows whose columns do not fill it, in int16: [kRows][kTrunkGroup].
template <typename T>
void WidenLastGroup(const Matrix& w, const RowBlock<T>& block, int16_t* widened) {
  for (size_t r = 0; r < kRows; ++r) {
    WidenGroup(w, block.rows[r], w.cols / kTrunkGroup, widened + r * kTrunkGroup);
  }
}

// The same of a group that is whole.
template <typename T>
HWY_INLINE void WidenWholeGroup(const RowBlock<T>& block, int64_t group, int16_t* widened) {
  const auto zero = hn::Set(I16(), kZero<T>);
  for (size_t r = 0; r < kRows; ++r) {
    int16_t* to = widened + r * kTrunkGroup;
    ForConstants<kHalfGroup / kStep>([&](auto step) SHOAL_INLINE_LAMBDA {
      constexpr size_t kFirst = decltype(step)::value * kStep;
      const Columns columns = LoadColumns(block.values[r] + group * kGroupBytes<T>, kFirst);
      hn::Store(hn::Sub(columns.first, zero), I16(), to + kFirst);
      hn::Store(hn::Sub(columns.second, zero), I16(), to + kHalfGroup + kFirst);
    });
  }
}

// Groups of kRows rows in int16, for code that wants pointers to rows.
struct WidenedRows {
  WidenedRows() {
    for (size_t r = 0; r < kRows; ++r) {
      rows[r] = values + r * kTrunkGroup;
    }
  }
  alignas(64) int16_t values[kRows * kTrunkGroup];
  const int16_t* rows[kRows];
};

// Asks for the group that lies `distance` bytes behind a group of every row.
template <typename T>
HWY_INLINE void PrefetchGroup(const RowBlock<T>& block, int64_t group, int64_t distance) {
  ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
    const T* ahead = block.values[r] + group * kGroupBytes<T> + distance;
    HWY_UNROLL(2)
    for (int64_t line = 0; line < kGroupBytes<T>; line += 64) {
      hwy::Prefetch(ahead + line);
    }
  });
}

// One row of activations: weights are used as they come, once.
template <typename T>
void MultiplyRow(const Matrix& w, const TrunkRow& x, int64_t row_begin, int64_t row_end,
                 float* out) {
  const int64_t whole_groups = w.cols / kTrunkGroup;
  const int64_t row_bytes = RowValueBytes(w.type, w.cols);
  WidenedRows widened;
  for (int64_t i = row_begin; i < row_end; i += kRows) {
    const RowBlock<T> block(w, i, row_end);
    auto acc = hn::Zero(F64());
    for (int64_t g = 0; g < whole_groups; ++g) {
      PrefetchGroup(block, g, kRows * row_bytes);
      const auto dots = GroupDots(block.values, g * kGroupBytes<T>, x.low + g * kTrunkGroup,
                                  x.high + g * kTrunkGroup);
      const auto offset = hn::Set(F64(), kZero<T> * x.sums[g]);
      acc = AddGroup(hn::Sub(dots, offset), block.Scales(g), x.scales[g], acc);
    }
    if (w.cols % kTrunkGroup != 0) {
      const int64_t g = whole_groups;
      WidenLastGroup(w, block, widened.values);
      const auto dots =
          GroupDots(widened.rows, 0, x.low + g * kTrunkGroup, x.high + g * kTrunkGroup);
      acc = AddGroup(dots, block.Scales(g), x.scales[g], acc);
    }
    StoreRounded(acc, row_end - i, out + i);
  }
}

// At most kBlockOfX rows of activations: a group of weights is widened once for all of them.
template <typename T>
void MultiplyBlock(const Matrix& w, const TrunkRow* x, int64_t num_x, int64_t row_begin,
                   int64_t row_end, float* out, int64_t out_stride) {
  const F64 d;
  const int64_t whole_groups = w.cols / kTrunkGroup;
  const int64_t groups = ScalesPerRow(w.type, w.cols);
  WidenedRows widened;
  for (int64_t i = row_begin; i < row_end; i += kRows) {
    const RowBlock<T> block(w, i, row_end);
    alignas(64) double acc[kBlockOfX][kRows] = {};
    for (int64_t g = 0; g < groups; ++g) {
      if (g < whole_groups) {
        WidenWholeGroup(block, g, widened.values);
      } else {
        WidenLastGroup(w, block, widened.values);
      }
      const auto scales = block.Scales(g);
      for (int64_t c = 0; c < num_x; ++c) {
        const auto dots =
            GroupDots(widened.rows, 0, x[c].low + g * kTrunkGroup, x[c].high + g * kTrunkGroup);
        hn::Store(AddGroup(dots, scales, x[c].scales[g], hn::Load(d, acc[c])), d, acc[c]);
      }
    }
    for (int64_t c = 0; c < num_x; ++c) {
      StoreRounded(hn::Load(d, acc[c]), row_end - i, out + c * out_stride + i);
    }
  }
}

template <typename T>
void Multiply(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
              float* out, int64_t out_stride) {
  for (int64_t first = 0; first < input.num_x; first += kBlockOfX) {
    const int64_t count = std::min(kBlockOfX, input.num_x - first);
    if (count == 1) {
      MultiplyRow<T>(w, input.rows[first], row_begin, row_end, out + first * out_stride);
    } else {
      MultiplyBlock<T>(w, input.rows + first, count, row_begin, row_end, out + first * out_stride,
                       out_stride);
    }
  }
}

void MultiplyQuantized(const Matrix& w, const MatMulInput& input, int64_t row_begin,
                       int64_t row_end, float* out, int64_t out_stride) {
  if (w.type == TrunkType::kQ8) {
    Multiply<int8_t>(w, input, row_begin, row_end, out, out_stride);
  } else {
    Multiply<uint8_t>(w, input, row_begin, row_end, out, out_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(MultiplyQuantized);

}  // namespace

void QuantizedMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                     float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyQuantized)(w, input, row_begin, row_end, out, out_stride);
}

}  // namespace shoal
#endif  // HWY_ONCE

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/lanes.h"
#include "kernels/matvec_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matvec_float.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "kernels/constant_loop-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F64 = hn::CappedTag<double, kLanes>;
using F32 = hn::Rebind<float, F64>;

constexpr size_t kWidth = hn::MaxLanes(F64());
constexpr size_t kVectors = kLanes / kWidth;  // that hold the lanes of a sum

// Elements to double, exactly.
HWY_INLINE hn::Vec<F64> Widened(const float* from) {
  return hn::PromoteTo(F64(), hn::LoadU(F32(), from));
}
HWY_INLINE hn::Vec<F64> Widened(const uint16_t* bf16_bits) {
  const hn::Rebind<uint32_t, F64> words;
  const hn::Rebind<uint16_t, F64> halves;
  const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, bf16_bits)));
  return hn::PromoteTo(F64(), hn::BitCast(F32(), bits));
}

// Sums of the pairs of kRows rows of weights and kX rows of activations, in kAtOnce of the vectors of lanes.
template <size_t kRows, size_t kX, size_t kAtOnce>
struct LaneSums {
  hn::Vec<F64> sums[kRows * kX * kAtOnce];

  LaneSums() {
    ForConstants<kRows * kX * kAtOnce>([&](auto i)
                                           SHOAL_INLINE_LAMBDA { sums[i] = hn::Zero(F64()); });
  }
  // The products of elements offset, offset + 1, ... of all rows. Fused or not is the same: they are exact.
  template <typename T>
  HWY_INLINE void Add(const T* const* w, const float* const* x, int64_t offset) {
    ForConstants<kAtOnce>([&](auto v) SHOAL_INLINE_LAMBDA {
      const int64_t i = offset + static_cast<int64_t>(v * kWidth);
      hn::Vec<F64> weights[kRows];
      ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA { weights[r] = Widened(w[r] + i); });
      ForConstants<kX>([&](auto c) SHOAL_INLINE_LAMBDA {
        const auto activations = Widened(x[c] + i);
        ForConstants<kRows>([&](auto r) SHOAL_INLINE_LAMBDA {
          constexpr size_t kSum =
              (decltype(r)::value * kX + decltype(c)::value) * kAtOnce + decltype(v)::value;
          sums[kSum] = hn::MulAdd(weights[r], activations, sums[kSum]);
        });
      });
    });
  }
  // Into lanes [kRows * kX][kLanes], from `first` on.
  HWY_INLINE void Store(double* lanes, size_t first) const {
    ForConstants<kRows * kX * kAtOnce>([&](auto i) SHOAL_INLINE_LAMBDA {
      hn::StoreU(sums[i], F64(), lanes + i / kAtOnce * kLanes + first + i % kAtOnce * kWidth);
    });
  }
};

// lanes [kRows * kX][kLanes] of the dot products of n elements. What is left of rows after whole steps of kLanes is
// taken with zeros behind it: a lane is never -0, so that adding 0 leaves its bits.
template <size_t kRows, size_t kX, size_t kAtOnce, typename T>
HWY_INLINE void LaneDots(const T* const* w, const float* const* x, int64_t n, double* lanes) {
  const int64_t whole = n / kLanes * kLanes;
  T w_rest[kRows][kLanes] = {};
  float x_rest[kX][kLanes] = {};
  const T* w_rests[kRows];
  const float* x_rests[kX];
  for (size_t r = 0; r < kRows; ++r) {
    std::copy(w[r] + whole, w[r] + n, w_rest[r]);
    w_rests[r] = w_rest[r];
  }
  for (size_t c = 0; c < kX; ++c) {
    std::copy(x[c] + whole, x[c] + n, x_rest[c]);
    x_rests[c] = x_rest[c];
  }
  for (size_t first = 0; first < kLanes; first += kAtOnce * kWidth) {
    LaneSums<kRows, kX, kAtOnce> sums;
    for (int64_t i = 0; i < whole; i += kLanes) {
      if constexpr (kX == 1) {
        ForConstants<kRows>([&](auto r)
                                SHOAL_INLINE_LAMBDA { hwy::Prefetch(w[r] + kRows * n + i); });
      }
      sums.Add(w, x, i + static_cast<int64_t>(first));
    }
    if (whole < n) {
      sums.Add(w_rests, x_rests, static_cast<int64_t>(first));
    }
    sums.Store(lanes, first);
  }
}

// Rows [row_begin, row_end) with kX rows of activations at x, of which num_x are written. Where kRows rows are not
// left the last one is taken again: that costs less code than to leave some out.
template <size_t kRows, size_t kX, size_t kAtOnce, typename T>
void MultiplyBlock(const Matrix& w, const float* const* x, int64_t num_x, int64_t row_begin,
                   int64_t row_end, float* out, int64_t out_stride) {
  for (int64_t i = row_begin; i < row_end; i += kRows) {
    const T* rows[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      rows[r] = static_cast<const T*>(w.values) +
                std::min(i + static_cast<int64_t>(r), row_end - 1) * w.cols;
    }
    alignas(64) double lanes[kRows * kX][kLanes];
    LaneDots<kRows, kX, kAtOnce>(rows, x, w.cols, lanes[0]);
    for (int64_t r = 0; r < std::min<int64_t>(kRows, row_end - i); ++r) {
      for (int64_t c = 0; c < num_x; ++c) {
        out[c * out_stride + i + r] = static_cast<float>(FoldLanes(lanes[r * kX + c]));
      }
    }
  }
}

template <typename T>
void Multiply(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
              float* out, int64_t out_stride) {
  // Half the registers hold sums. One row of activations has all its lanes at once, so that memory is read in order;
  // of more rows one vector of lanes at a time, so that as many pairs as possible share what was widened.
  constexpr size_t kRegisters = HWY_TARGET <= HWY_AVX3 ? 32 : 16;
  constexpr size_t kX = 4;
  constexpr size_t kRowsOfOne = kRegisters / 2 / kVectors;
  constexpr size_t kRowsOfMany = kRegisters / 2 / kX;
  for (int64_t first = 0; first < input.num_x; first += kX) {
    const int64_t count = std::min<int64_t>(kX, input.num_x - first);
    const float* x[kX];
    for (int64_t c = 0; c < static_cast<int64_t>(kX); ++c) {
      x[c] = input.x + (first + std::min(c, count - 1)) * w.cols;
    }
    if (count == 1) {
      MultiplyBlock<kRowsOfOne, 1, kVectors, T>(w, x, 1, row_begin, row_end,
                                                out + first * out_stride, out_stride);
    } else {
      MultiplyBlock<kRowsOfMany, kX, 1, T>(w, x, count, row_begin, row_end,
                                           out + first * out_stride, out_stride);
    }
  }
}

void MultiplyFloat(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                   float* out, int64_t out_stride) {
  if (w.type == TrunkType::kF32) {
    Multiply<float>(w, input, row_begin, row_end, out, out_stride);
  } else {
    Multiply<uint16_t>(w, input, row_begin, row_end, out, out_stride);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(MultiplyFloat);

}  // namespace

void FloatMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                 float* out, int64_t out_stride) {
  HWY_DYNAMIC_DISPATCH(MultiplyFloat)(w, input, row_begin, row_end, out, out_stride);
}

}  // namespace shoal
#endif  // HWY_ONCE

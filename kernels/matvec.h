// Products of trunk matrices with activation rows.
//
// Order of sums, for every output element on its own (so one row and many rows agree to the bit):
//   kF32, kBF16  16 lanes of double: lane l adds w[i] * x[i] for i = l, l + 16, ... in order; lanes
//                are folded 8, 4, 2, 1 (lane l += lane l + 8, ...). Products of two floats are
//                exact in double, so fused or not is the same.
//   kQ8, kQ4     x is quantized per group of 128 columns to 28-bit integers (QuantizeTrunkRow);
//                within a group the products are summed as integers (exact); groups are added in
//                index order in double: acc = fma(sum_g, weight_scale_g * x_scale_g, acc).
// The result is rounded to float once.
#ifndef SHOAL_KERNELS_MATVEC_H_
#define SHOAL_KERNELS_MATVEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/matrix.h"

namespace shoal {

inline constexpr int kTrunkLowBits = 14;

// An activation row as integers: q[i] = high[i] * 2^14 + low[i], |low| <= 2^13, |q| < 2^27; x[i] ~
// q[i] * scales[i / 128]. The scale is a power of two. Arrays are padded with zeros to whole
// groups.
struct TrunkRow {
  const int16_t* high = nullptr;
  const int16_t* low = nullptr;
  const double* scales = nullptr;
  const double* sums = nullptr;  // of q, a group each
};

// Bytes of storage for one quantized row of `cols` elements.
int64_t TrunkRowBytes(int64_t cols);
// Quantizes x into `storage` (TrunkRowBytes(x.size()) bytes, aligned to 64), which the result
// points into. A group with an element that is not finite gets scale NaN and zeros, so that every
// product with it is NaN.
TrunkRow QuantizeTrunkRow(std::span<const float> x, std::span<std::byte> storage);

// out[r * out_stride + i] = w[i, :] . x[r, :] for i in [row_begin, row_end), r in [0, num_x). `x`
// is [num_x, w.cols] for float types; `rows` has num_x entries for quantized types (the other of
// the two is ignored).
struct MatMulInput {
  int64_t num_x = 0;
  const float* x = nullptr;
  const TrunkRow* rows = nullptr;
};
void MatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
            float* out, int64_t out_stride);

// Row `row` of w, widened: out[w.cols].
void DequantizeRow(const Matrix& w, int64_t row, std::span<float> out);

// Quantizes one row of weights to kQ8 or kQ4: values (RowValueBytes) and float16 scales
// (ScalesPerRow). Scales are chosen per group to minimise the squared error among a few candidates.
// A group whose scale underflows float16 becomes zeros; one whose scale float16 cannot hold gets
// the scale infinity, which the caller refuses.
void QuantizeWeightRow(TrunkType type, std::span<const float> row, std::span<std::byte> values,
                       std::span<uint16_t> scales);

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATVEC_H_

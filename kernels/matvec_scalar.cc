#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/math.h"
#include "kernels/matvec_kernels.h"

namespace shoal {
namespace {

// sum_i w[i] * q[i] over a whole group. The halves cannot overflow: 128 * 128 * 2^13 = 2^27.
int64_t GroupDot(const int16_t* w, const int16_t* high, const int16_t* low) {
  int32_t sum_high = 0;
  int32_t sum_low = 0;
  for (int64_t i = 0; i < kTrunkGroup; ++i) {
    sum_high += int32_t{w[i]} * int32_t{high[i]};
    sum_low += int32_t{w[i]} * int32_t{low[i]};
  }
  return (int64_t{sum_high} << kTrunkLowBits) + sum_low;
}

double QuantizedDot(const Matrix& w, int64_t row, const TrunkRow& x) {
  const int64_t groups = ScalesPerRow(w.type, w.cols);
  double acc = 0;
  for (int64_t g = 0; g < groups; ++g) {
    int16_t values[kTrunkGroup];
    WidenGroup(w, row, g, values);
    const int64_t sum = GroupDot(values, x.high + g * kTrunkGroup, x.low + g * kTrunkGroup);
    const double weight_scale = HalfToFloat(w.scales[row * groups + g]);
    acc = std::fma(static_cast<double>(sum), weight_scale * x.scales[g], acc);
  }
  return acc;
}

double Dot(const Matrix& w, int64_t row, const MatMulInput& input, int64_t r) {
  switch (w.type) {
    case TrunkType::kF32:
      return LaneDot(static_cast<const float*>(w.values) + row * w.cols, input.x + r * w.cols,
                     w.cols);
    case TrunkType::kBF16:
      return LaneDot(static_cast<const uint16_t*>(w.values) + row * w.cols, input.x + r * w.cols,
                     w.cols);
    case TrunkType::kQ8:
    case TrunkType::kQ4:
      return QuantizedDot(w, row, input.rows[r]);
  }
  return 0;
}

}  // namespace

void ScalarMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                  float* out, int64_t out_stride) {
  for (int64_t i = row_begin; i < row_end; ++i) {
    for (int64_t r = 0; r < input.num_x; ++r) {
      out[r * out_stride + i] = static_cast<float>(Dot(w, i, input, r));
    }
  }
}

}  // namespace shoal

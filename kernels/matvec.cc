#include "kernels/matvec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "kernels/matvec_kernels.h"

namespace shoal {
namespace {

constexpr double kQuantizedBits = 27;  // |q| <= 2^27

int64_t NumGroups(int64_t cols) { return (cols + kTrunkGroup - 1) / kTrunkGroup; }

}  // namespace

int64_t TrunkRowBytes(int64_t cols) {
  const int64_t groups = NumGroups(cols);
  const int64_t planes = 2 * groups * kTrunkGroup * static_cast<int64_t>(sizeof(int16_t));
  return (planes + 2 * groups * static_cast<int64_t>(sizeof(double)) + 63) / 64 * 64;
}

TrunkRow QuantizeTrunkRow(std::span<const float> x, std::span<std::byte> storage) {
  const auto cols = static_cast<int64_t>(x.size());
  const int64_t groups = NumGroups(cols);
  auto* high = reinterpret_cast<int16_t*>(storage.data());
  int16_t* low = high + groups * kTrunkGroup;
  auto* scales = reinterpret_cast<double*>(low + groups * kTrunkGroup);
  double* sums = scales + groups;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * kTrunkGroup;
    const int64_t n = std::min(kTrunkGroup, cols - begin);
    int16_t* group_high = high + begin;
    int16_t* group_low = low + begin;
    std::fill(group_high, group_high + kTrunkGroup, int16_t{0});
    std::fill(group_low, group_low + kTrunkGroup, int16_t{0});
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; ++i) {
      const float magnitude = std::fabs(x[begin + i]);
      finite = finite && magnitude <= std::numeric_limits<float>::max();
      largest = std::max(largest, magnitude);
    }
    sums[g] = 0;
    if (!finite || largest == 0) {
      scales[g] = finite ? 0.0 : std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    int exponent = 0;
    std::frexp(largest, &exponent);  // largest < 2^exponent
    scales[g] = std::ldexp(1.0, exponent - static_cast<int>(kQuantizedBits));
    const double inverse = 1.0 / scales[g];  // exact: a power of two
    int64_t sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto q = static_cast<int32_t>(std::nearbyint(double{x[begin + i]} * inverse));
      const int32_t h = (q + (1 << (kTrunkLowBits - 1))) >> kTrunkLowBits;
      group_high[i] = static_cast<int16_t>(h);
      group_low[i] = static_cast<int16_t>(q - (h << kTrunkLowBits));
      sum += q;
    }
    sums[g] = static_cast<double>(sum);
  }
  return TrunkRow{high, low, scales, sums};
}

void MatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
            float* out, int64_t out_stride) {
  if (w.type == TrunkType::kQ8 || w.type == TrunkType::kQ4) {
    QuantizedMatMul(w, input, row_begin, row_end, out, out_stride);
    return;
  }
  FloatMatMul(w, input, row_begin, row_end, out, out_stride);
}

void DequantizeRow(const Matrix& w, int64_t row, std::span<float> out) {
  if (w.type == TrunkType::kF32) {
    const float* values = static_cast<const float*>(w.values) + row * w.cols;
    std::copy(values, values + w.cols, out.begin());
    return;
  }
  if (w.type == TrunkType::kBF16) {
    const uint16_t* values = static_cast<const uint16_t*>(w.values) + row * w.cols;
    std::transform(values, values + w.cols, out.begin(), Bf16ToFloat);
    return;
  }
  const int64_t groups = NumGroups(w.cols);
  for (int64_t g = 0; g < groups; ++g) {
    int16_t group[kTrunkGroup];
    WidenGroup(w, row, g, group);
    const float scale = HalfToFloat(w.scales[row * groups + g]);
    const int64_t begin = g * kTrunkGroup;
    for (int64_t i = 0; i < std::min(kTrunkGroup, w.cols - begin); ++i) {
      out[begin + i] = static_cast<float>(group[i]) * scale;
    }
  }
}

}  // namespace shoal

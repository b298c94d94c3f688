#include "kernels/matvec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lanes.h"
#include "kernels/math.h"

namespace shoal {
namespace {

constexpr int64_t kLowBits = 14;
constexpr double kQuantizedBits = 27;  // |q| <= 2^27

int64_t NumGroups(int64_t cols) { return (cols + kTrunkGroup - 1) / kTrunkGroup; }

// Widens one group of quantized weights to int16, zero-padded to a whole group.
void LoadGroup(const Matrix& w, const uint8_t* row_values, int64_t group, int16_t* out) {
  const int64_t begin = group * kTrunkGroup;
  const int64_t n = std::min(kTrunkGroup, w.cols - begin);
  if (w.type == TrunkType::kQ8) {
    const auto* values = reinterpret_cast<const int8_t*>(row_values) + begin;
    for (int64_t i = 0; i < n; ++i) {
      out[i] = values[i];
    }
  } else {
    const uint8_t* values = row_values + group * (kTrunkGroup / 2);
    const int64_t half = (n + 1) / 2;
    for (int64_t i = 0; i < half; ++i) {
      out[i] = static_cast<int16_t>((values[i] & 15) - 8);
    }
    for (int64_t i = half; i < n; ++i) {
      out[i] = static_cast<int16_t>((values[i - half] >> 4) - 8);
    }
  }
  std::fill(out + n, out + kTrunkGroup, int16_t{0});
}

// sum_i w[i] * q[i] over a whole group. The halves cannot overflow: 128 * 127 * 2^13 < 2^28.
int64_t GroupDot(const int16_t* w, const int16_t* high, const int16_t* low) {
  int32_t sum_high = 0;
  int32_t sum_low = 0;
  for (int64_t i = 0; i < kTrunkGroup; ++i) {
    sum_high += int32_t{w[i]} * int32_t{high[i]};
    sum_low += int32_t{w[i]} * int32_t{low[i]};
  }
  return (int64_t{sum_high} << kLowBits) + sum_low;
}

void QuantizedMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                     float* out, int64_t out_stride) {
  // Accumulators of this many activation rows at a time, so that a group of weights is widened once
  // for all of them.
  constexpr int64_t kBlock = 16;
  const int64_t groups = NumGroups(w.cols);
  const int64_t row_bytes = RowValueBytes(w.type, w.cols);
  for (int64_t i = row_begin; i < row_end; ++i) {
    const uint8_t* values = static_cast<const uint8_t*>(w.values) + i * row_bytes;
    const uint16_t* scales = w.scales + i * groups;
    for (int64_t first = 0; first < input.num_x; first += kBlock) {
      const int64_t count = std::min(kBlock, input.num_x - first);
      double acc[kBlock] = {};
      for (int64_t g = 0; g < groups; ++g) {
        alignas(64) int16_t group[kTrunkGroup];
        LoadGroup(w, values, g, group);
        const double weight_scale = HalfToFloat(scales[g]);
        for (int64_t r = 0; r < count; ++r) {
          const TrunkRow& x = input.rows[first + r];
          const int64_t sum = GroupDot(group, x.high + g * kTrunkGroup, x.low + g * kTrunkGroup);
          acc[r] = std::fma(static_cast<double>(sum), weight_scale * x.scales[g], acc[r]);
        }
      }
      for (int64_t r = 0; r < count; ++r) {
        out[(first + r) * out_stride + i] = static_cast<float>(acc[r]);
      }
    }
  }
}

}  // namespace

int64_t TrunkRowBytes(int64_t cols) {
  const int64_t groups = NumGroups(cols);
  const int64_t planes = 2 * groups * kTrunkGroup * static_cast<int64_t>(sizeof(int16_t));
  return (planes + groups * static_cast<int64_t>(sizeof(double)) + 63) / 64 * 64;
}

TrunkRow QuantizeTrunkRow(std::span<const float> x, std::span<std::byte> storage) {
  const auto cols = static_cast<int64_t>(x.size());
  const int64_t groups = NumGroups(cols);
  auto* high = reinterpret_cast<int16_t*>(storage.data());
  int16_t* low = high + groups * kTrunkGroup;
  auto* scales = reinterpret_cast<double*>(low + groups * kTrunkGroup);
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
    if (!finite || largest == 0) {
      scales[g] = finite ? 0.0 : std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    int exponent = 0;
    std::frexp(largest, &exponent);  // largest < 2^exponent
    scales[g] = std::ldexp(1.0, exponent - static_cast<int>(kQuantizedBits));
    const double inverse = 1.0 / scales[g];  // exact: a power of two
    for (int64_t i = 0; i < n; ++i) {
      const auto q = static_cast<int32_t>(std::nearbyint(double{x[begin + i]} * inverse));
      const int32_t h = (q + (1 << (kLowBits - 1))) >> kLowBits;
      group_high[i] = static_cast<int16_t>(h);
      group_low[i] = static_cast<int16_t>(q - (h << kLowBits));
    }
  }
  return TrunkRow{high, low, scales};
}

void MatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
            float* out, int64_t out_stride) {
  if (w.type == TrunkType::kQ8 || w.type == TrunkType::kQ4) {
    QuantizedMatMul(w, input, row_begin, row_end, out, out_stride);
    return;
  }
  for (int64_t i = row_begin; i < row_end; ++i) {
    for (int64_t r = 0; r < input.num_x; ++r) {
      const float* x = input.x + r * w.cols;
      const double sum =
          w.type == TrunkType::kF32
              ? LaneDot(static_cast<const float*>(w.values) + i * w.cols, x, w.cols)
              : LaneDot(static_cast<const uint16_t*>(w.values) + i * w.cols, x, w.cols);
      out[r * out_stride + i] = static_cast<float>(sum);
    }
  }
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
  const uint8_t* values =
      static_cast<const uint8_t*>(w.values) + row * RowValueBytes(w.type, w.cols);
  for (int64_t g = 0; g < groups; ++g) {
    int16_t group[kTrunkGroup];
    LoadGroup(w, values, g, group);
    const float scale = HalfToFloat(w.scales[row * groups + g]);
    const int64_t begin = g * kTrunkGroup;
    for (int64_t i = 0; i < std::min(kTrunkGroup, w.cols - begin); ++i) {
      out[begin + i] = static_cast<float>(group[i]) * scale;
    }
  }
}

}  // namespace shoal

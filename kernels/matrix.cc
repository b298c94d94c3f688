#include "kernels/matrix.h"

#include <algorithm>

namespace shoal {

int64_t RowValueBytes(TrunkType type, int64_t cols) {
  switch (type) {
    case TrunkType::kF32:
      return cols * 4;
    case TrunkType::kBF16:
      return cols * 2;
    case TrunkType::kQ8:
      return cols;
    case TrunkType::kQ4:
      return cols / kTrunkGroup * (kTrunkGroup / 2) + (cols % kTrunkGroup + 1) / 2;
  }
  return 0;
}

int64_t ScalesPerRow(TrunkType type, int64_t cols) {
  const bool quantized = type == TrunkType::kQ8 || type == TrunkType::kQ4;
  return quantized ? (cols + kTrunkGroup - 1) / kTrunkGroup : 0;
}

void WidenGroup(const Matrix& w, int64_t row, int64_t group, int16_t* out) {
  const int64_t begin = group * kTrunkGroup;
  const int64_t n = std::min(kTrunkGroup, w.cols - begin);
  const uint8_t* bytes =
      static_cast<const uint8_t*>(w.values) + row * RowValueBytes(w.type, w.cols);
  if (w.type == TrunkType::kQ8) {
    const auto* values = reinterpret_cast<const int8_t*>(bytes) + begin;
    std::copy(values, values + n, out);
  } else {
    const uint8_t* values = bytes + group * (kTrunkGroup / 2);
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

}  // namespace shoal

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

}  // namespace shoal

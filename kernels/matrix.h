// Matrices of the trunk as they lie in memory.
#ifndef SHOAL_KERNELS_MATRIX_H_
#define SHOAL_KERNELS_MATRIX_H_

#include <cstdint>

namespace shoal {

// kQ8: int8 with a float16 scale per row and group of 128 columns (the last group of a row may be
//      shorter); weight = value * scale.
// kQ4: the same with 4-bit values in [-8, 7]. A group of n columns is h = ceil(n / 2) bytes: byte j
//      holds column j in its low and column j + h in its high nibble, each as value + 8 (a missing
//      column is 8).
enum class TrunkType { kF32, kBF16, kQ8, kQ4 };

inline constexpr int64_t kTrunkGroup = 128;  // columns per scale

// A view; the bytes belong to someone else and outlive it. Row-major [rows, cols], y = W x.
struct Matrix {
  TrunkType type = TrunkType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  const void* values = nullptr;      // aligned to 64 bytes
  const uint16_t* scales = nullptr;  // float16 bits [rows, ceil(cols / 128)], quantized types only
};

// Bytes of the values of one row, and of all values and all scales of a [rows, cols] matrix.
int64_t RowValueBytes(TrunkType type, int64_t cols);
int64_t ScalesPerRow(TrunkType type, int64_t cols);

// The values of one group of a row of kQ8 or kQ4, without their scale: out[kTrunkGroup], with zeros after the last
// column.
void WidenGroup(const Matrix& w, int64_t row, int64_t group, int16_t* out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATRIX_H_

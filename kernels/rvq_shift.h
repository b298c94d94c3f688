// How fast arithmetic rounds the table values of rvq3 to 16 bits: in blocks of 64 positions, to multiples of 2^shift,
//
//   ((value + 2^(shift - 1)) >> shift) << shift,   and value itself where shift is 0.
//
// The shift is the smallest with which no value of the block can leave 16 bits: by Cauchy and Schwarz a value is at most
// the length of its entry times that of its position's activations. Everything here is static, as in
// rvq_byte_tables.h.
#ifndef SHOAL_KERNELS_RVQ_SHIFT_H_
#define SHOAL_KERNELS_RVQ_SHIFT_H_

#include <cstdint>

#include "kernels/rvq_kernels.h"

namespace shoal {

static constexpr int64_t kRvqBlockPositions = 64;

// The largest squared length of `count` vectors of eight, as T: int8_t or int32_t below 2^13.
template <typename T>
static inline uint64_t LargestSquare(const T* vectors, int64_t count) {
  uint64_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint64_t square = 0;
    for (int d = 0; d < kSubVectorSize; ++d) {
      const int64_t element = vectors[i * kSubVectorSize + d];
      square += static_cast<uint64_t>(element * element);
    }
    largest = square > largest ? square : largest;
  }
  return largest;
}

// `entries` is LargestSquare of a book, `activations` of a block's.
static inline int RvqShift(uint64_t entries, uint64_t activations) {
  int shift = 0;
  for (uint64_t limit = 32767; entries * activations > limit * limit; limit *= 2) {
    ++shift;
  }
  return shift;
}

// Half of what is shifted away.
static inline int32_t RvqHalf(int shift) { return shift == 0 ? 0 : int32_t{1} << (shift - 1); }

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_SHIFT_H_

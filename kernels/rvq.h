// Residual vector quantization at 3.00 bits a weight: shape and packing shared by encoder and apply
// kernels.
//
// Eight consecutive weights of a row (a sub-vector) are coded by 4 stages of 6-bit indices, 24 bits
// in all:
//
//   weight[8p + d] = row_scale * (book[0][i0][d] + book[1][i1][d] + book[2][i2][d] +
//   book[3][i3][d])
//
// with int8 codebooks, so the sum is an exact integer in [-512, 508]. The code of a sub-vector is
// the 24-bit word i0 | i1 << 6 | i2 << 12 | i3 << 18, stored as three bytes in three planes (byte k
// = bits 8k..8k+7): plane k of a position holds byte k of all rows side by side, so that a vector
// load takes the same byte of many rows.
#ifndef SHOAL_KERNELS_RVQ_H_
#define SHOAL_KERNELS_RVQ_H_

#include <array>
#include <cstdint>

namespace shoal {

inline constexpr int kSubVectorSize = 8;
inline constexpr int kRvqStages = 4;
inline constexpr int kCodebookEntries = 64;
inline constexpr int kRvqPlanes = 3;
inline constexpr int kRvqIndexBits = 6;

// The index that a code holds for a stage.
inline int RvqIndex(uint32_t code, int stage) {
  return static_cast<int>(code >> (kRvqIndexBits * stage)) & (kCodebookEntries - 1);
}

// book[stage][entry][element]; 2048 bytes.
struct RvqCodebook {
  std::array<int8_t, kRvqStages * kCodebookEntries * kSubVectorSize> values{};

  const int8_t* entry(int stage, int index) const {
    return values.data() + (stage * kCodebookEntries + index) * kSubVectorSize;
  }
  int8_t* entry(int stage, int index) {
    return values.data() + (stage * kCodebookEntries + index) * kSubVectorSize;
  }
};

// The books of one MoE layer, shared by all its experts, one per matrix kind.
struct LayerCodebooks {
  RvqCodebook gate;
  RvqCodebook up;
  RvqCodebook down;
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_H_

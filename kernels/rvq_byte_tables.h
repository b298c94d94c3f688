// What the vector versions of rvq_kernels.h share: a table kept as bytes, and the way through a unit's codes
// in blocks. Everything here is static: each file that includes it is compiled for an instruction set of its
// own, and the linker must not take one's copy for another.
//
// A table is [stage][plane][64]: plane k holds byte k of value + 2^31. Looked-up bytes are added as 16-bit
// numbers over at most 64 positions (4 stages * 64 * 255 < 2^16), and then to the sums.
#ifndef SHOAL_KERNELS_RVQ_BYTE_TABLES_H_
#define SHOAL_KERNELS_RVQ_BYTE_TABLES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/rvq_kernels.h"

namespace shoal {

static constexpr int64_t kBlockPositions = 64;
static constexpr int kBytePlanes = 4;  // bytes of a value
static constexpr int64_t kTableBytes = kRvqTableElements * kBytePlanes;
static constexpr int64_t kValueBias = int64_t{1} << 31;

// Asks for what is needed next: some positions on in this block, and some rows on for the next one. Codes
// come from memory, and processors do not see through these strides.
static inline void PrefetchCodes(const uint8_t* codes, int64_t plane_bytes,
                                 int64_t position_stride) {
  constexpr int64_t kPositionsAhead = 8;
  constexpr int64_t kRowsAhead = 128;
  for (int plane = 0; plane < kRvqPlanes; ++plane) {
    const uint8_t* here = codes + plane * plane_bytes;
    _mm_prefetch(reinterpret_cast<const char*>(here + kPositionsAhead * position_stride),
                 _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + kRowsAhead), _MM_HINT_T0);
  }
}

// RvqKernels::add_codes in blocks: `add_block`(codes, plane_bytes, position_stride, positions, rows, table,
// sums) gets at most kBlockPositions positions and block_rows rows, of the plane_bytes that a plane has.
template <typename AddBlock>
static void AddInBlocks(int64_t block_rows, const uint8_t* codes, int64_t position_stride,
                        int64_t positions, int64_t rows, const int32_t* tables, int64_t* sums,
                        AddBlock add_block) {
  const auto* table = reinterpret_cast<const uint8_t*>(tables);
  for (int64_t p = 0; p < positions; p += kBlockPositions) {
    const int64_t left = positions - p < kBlockPositions ? positions - p : kBlockPositions;
    for (int64_t r = 0; r < rows; r += block_rows) {
      add_block(codes + p * position_stride + r, rows, position_stride, left,
                rows - r < block_rows ? rows - r : block_rows, table + p * kTableBytes, sums + r);
    }
  }
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_BYTE_TABLES_H_

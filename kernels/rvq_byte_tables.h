// What the vector versions of rvq_kernels.h share: a table kept as bytes, and the way through a unit's codes
// in blocks. Everything here is static: each file that includes it is compiled for an instruction set of its
// own, and the linker must not take one's copy for another.
//
// A table is [stage][byte][64]: byte k of value + 2^31 in exact arithmetic, and of (value >> shift) + 2^15 in fast
// (rvq_shift.h). Behind the tables of all positions lie, in fast arithmetic, the shifts of their blocks as int32.
// Looked-up bytes are added as 16-bit numbers over at most 64 positions (4 stages * 64 * 255 < 2^16), and then to the
// sums.
#ifndef SHOAL_KERNELS_RVQ_BYTE_TABLES_H_
#define SHOAL_KERNELS_RVQ_BYTE_TABLES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/rvq_kernels.h"
#include "kernels/rvq_shift.h"

namespace shoal {

// The tables of activations of so many planes.
template <int kActivationPlanes>
struct RvqByteTables {
  static constexpr int kPlanes = kActivationPlanes;
  static constexpr bool kRounded = kPlanes == kFastPlanes;
  static constexpr int kBytes = kRounded ? 2 : 4;  // of a value
  static constexpr int64_t kStageBytes = kCodebookEntries * kBytes;
  static constexpr int64_t kTableBytes = kRvqStages * kStageBytes;
  static constexpr int64_t kBias = int64_t{1} << (8 * kBytes - 1);
};

// Asks for what is needed next: some positions on in this block, and some rows on for the next one. Codes
// come from memory, and processors do not see through these strides.
// Always inline: g++ drops calls of a function that only asks for memory.
[[gnu::always_inline]] static inline void PrefetchCodes(const uint8_t* codes, int64_t plane_bytes,
                                                        int64_t position_stride) {
  constexpr int64_t kPositionsAhead = 16;
  constexpr int64_t kRowsAhead = 128;
  for (int plane = 0; plane < kRvqPlanes; ++plane) {
    const uint8_t* here = codes + plane * plane_bytes;
    _mm_prefetch(reinterpret_cast<const char*>(here + kPositionsAhead * position_stride),
                 _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + kRowsAhead), _MM_HINT_T0);
  }
}

// RvqKernels::build_tables: Target::BuildTable(book, q, shift, table) builds that of one position.
template <typename Target>
static void BuildByteTables(const int8_t* book, const int32_t* q, int64_t positions,
                            int32_t* tables) {
  using Tables = typename Target::Tables;
  auto* table = reinterpret_cast<uint8_t*>(tables);
  auto* shifts = reinterpret_cast<int32_t*>(table + positions * Tables::kTableBytes);
  const uint64_t entries = Tables::kRounded ? LargestSquare(book, kRvqTableElements) : 0;
  int shift = 0;
  for (int64_t p = 0; p < positions; ++p) {
    if (Tables::kRounded && p % kRvqBlockPositions == 0) {
      const int64_t left = positions - p;
      const int64_t count = left < kRvqBlockPositions ? left : kRvqBlockPositions;
      shift = RvqShift(entries, LargestSquare(q + p * kSubVectorSize, count));
      shifts[p / kRvqBlockPositions] = shift;
    }
    Target::BuildTable(book, q + p * kSubVectorSize, shift, table + p * Tables::kTableBytes);
  }
}

// Where a block of codes lies: at most kRvqBlockPositions positions and Target::kBlockRows rows, of the plane_bytes that
// a plane has.
struct RvqBlock {
  const uint8_t* codes = nullptr;
  int64_t plane_bytes = 0;
  int64_t position_stride = 0;
  int64_t positions = 0;
  int64_t rows = 0;
};

// RvqKernels::add_codes: Target::AddBlock(block, table, shift, sums) adds those of one block.
template <typename Target>
static void AddByteCodes(const uint8_t* codes, int64_t position_stride, int64_t positions,
                         int64_t rows, const int32_t* tables, int64_t* sums) {
  using Tables = typename Target::Tables;
  const auto* table = reinterpret_cast<const uint8_t*>(tables);
  const auto* shifts = reinterpret_cast<const int32_t*>(table + positions * Tables::kTableBytes);
  for (int64_t p = 0; p < positions; p += kRvqBlockPositions) {
    const int64_t left = positions - p < kRvqBlockPositions ? positions - p : kRvqBlockPositions;
    const int shift = Tables::kRounded ? shifts[p / kRvqBlockPositions] : 0;
    for (int64_t r = 0; r < rows; r += Target::kBlockRows) {
      const RvqBlock block = {codes + p * position_stride + r, rows, position_stride, left,
                              rows - r < Target::kBlockRows ? rows - r : Target::kBlockRows};
      Target::AddBlock(block, table + p * Tables::kTableBytes, shift, sums + r);
    }
  }
}

// sums[r] += the value whose bytes were added up, each in `bytes`[k][row], less what the bias has made of it.
template <typename Tables, int64_t kRows>
static void AddBytes(const uint16_t (*bytes)[kRows], int64_t positions, int64_t rows, int shift,
                     int64_t* sums) {
  const int64_t bias = Tables::kBias * kRvqStages * positions;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t sum = bytes[0][r] + (int64_t{bytes[1][r]} << 8);
    if constexpr (!Tables::kRounded) {
      sum += (int64_t{bytes[2][r]} << 16) + (int64_t{bytes[3][r]} << 24);
    }
    sums[r] += (sum - bias) << shift;
  }
}

// Those of both arithmetics, of the classes of one instruction set.
template <template <int kPlanes> class Target>
static const RvqKernels& RvqKernelsOfTarget(ExpertArithmetic arithmetic) {
  using Exact = Target<kExactPlanes>;
  using Fast = Target<kFastPlanes>;
  static constexpr RvqKernels kExact = {kExactPlanes, BuildByteTables<Exact>, AddByteCodes<Exact>};
  static constexpr RvqKernels kFast = {kFastPlanes, BuildByteTables<Fast>, AddByteCodes<Fast>};
  return arithmetic == ExpertArithmetic::kExact ? kExact : kFast;
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_BYTE_TABLES_H_

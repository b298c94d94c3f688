// rvq3 with AVX-512 (F, BW, VL, VBMI, VNNI). Nothing here may be an inline function of another file:
// the linker would be free to take this file's copy of it for CPUs without AVX-512.
// One vpermb looks a byte of a table (rvq_byte_tables.h) up for 64 rows.
#include <immintrin.h>

#include "kernels/rvq_byte_tables.h"
#include "kernels/rvq_kernels.h"

namespace shoal {
namespace {

// The eight activations of a position in planes of signed 7 bits, each eight bytes, repeated.
template <int kPlanes>
struct PositionPlanes {
  __m512i plane[kPlanes];
};

template <int kPlanes>
PositionPlanes<kPlanes> SplitActivations(const int32_t* q) {
  const __m256i half = _mm256_set1_epi32(64);
  const __m256i mask = _mm256_set1_epi32(127);
  __m256i rest = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  PositionPlanes<kPlanes> planes;
  for (__m512i& plane : planes.plane) {
    const __m256i digit =
        _mm256_sub_epi32(_mm256_and_si256(_mm256_add_epi32(rest, half), mask), half);
    plane = _mm512_broadcastq_epi64(_mm256_cvtepi32_epi8(digit));
    rest = _mm256_srai_epi32(_mm256_sub_epi32(rest, digit), 7);
  }
  return planes;
}

// What the dot products below have too much where the entries are 128 too large.
template <int kPlanes>
PositionPlanes<kPlanes> Excess(const PositionPlanes<kPlanes>& q) {
  PositionPlanes<kPlanes> excess;
  for (int k = 0; k < kPlanes; ++k) {
    excess.plane[k] =
        _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), q.plane[k]);
  }
  return excess;
}

// Dot products of eight entries (plus 128) with the activations, each as two sums of four products.
template <int kPlanes>
__m512i HalfDots(__m512i entries, const PositionPlanes<kPlanes>& q,
                 const PositionPlanes<kPlanes>& excess) {
  __m512i dots = _mm512_setzero_si512();
#pragma GCC unroll 3
  for (int k = kPlanes - 1; k >= 0; --k) {
    const __m512i products = _mm512_dpbusd_epi32(_mm512_setzero_si512(), entries, q.plane[k]);
    dots =
        _mm512_add_epi32(_mm512_slli_epi32(dots, 7), _mm512_sub_epi32(products, excess.plane[k]));
  }
  return dots;
}

// Values of sixteen entries.
template <int kPlanes>
__m512i Values(const int8_t* entries, const PositionPlanes<kPlanes>& q,
               const PositionPlanes<kPlanes>& excess) {
  const __m512i flip = _mm512_set1_epi8(-128);
  const __m512i first = HalfDots(_mm512_xor_si512(_mm512_loadu_si512(entries), flip), q, excess);
  const __m512i second =
      HalfDots(_mm512_xor_si512(_mm512_loadu_si512(entries + 64), flip), q, excess);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                          _mm512_permutex2var_epi32(first, odd, second));
}

// Stores two bytes of 64 values of a stage, those that `chosen` says of the first 32, as planes.
void StoreTwoBytes(const __m512i* values, __m512i chosen, uint8_t* table) {
  const __m512i first = _mm512_permutex2var_epi8(values[0], chosen, values[1]);
  const __m512i second = _mm512_permutex2var_epi8(values[2], chosen, values[3]);
  constexpr int kLowHalves = 0x44;
  constexpr int kHighHalves = 0xee;
  _mm512_storeu_si512(table, _mm512_shuffle_i64x2(first, second, kLowHalves));
  _mm512_storeu_si512(table + kCodebookEntries, _mm512_shuffle_i64x2(first, second, kHighHalves));
}

// Bytes 0, 4, 8, ... of 32 values, and then bytes 1, 5, 9, ...
__m512i FirstTwoBytes() {
  alignas(64) uint8_t first_two[64];
  for (int i = 0; i < 32; ++i) {
    first_two[i] = static_cast<uint8_t>(4 * i);
    first_two[32 + i] = static_cast<uint8_t>(4 * i + 1);
  }
  return _mm512_load_si512(first_two);
}

// The indices of 64 codes for each stage, in the low six bits of a byte.
struct Indices {
  __m512i stage[kRvqStages];
};

Indices SplitCodes(__m512i low, __m512i middle, __m512i high) {
  constexpr int kFirstWhereMask = 0xca;  // mask ? first : second
  const __m512i two = _mm512_set1_epi8(0x03);
  const __m512i four = _mm512_set1_epi8(0x0f);
  Indices indices;
  indices.stage[0] = low;
  indices.stage[1] = _mm512_ternarylogic_epi32(two, _mm512_srli_epi16(low, 6),
                                               _mm512_slli_epi16(middle, 2), kFirstWhereMask);
  indices.stage[2] = _mm512_ternarylogic_epi32(four, _mm512_srli_epi16(middle, 4),
                                               _mm512_slli_epi16(high, 4), kFirstWhereMask);
  indices.stage[3] = _mm512_srli_epi16(high, 2);
  return indices;
}

template <int kPlanes>
class Avx512 {
 public:
  using Tables = RvqByteTables<kPlanes>;
  static constexpr int64_t kBlockRows = 128;

  static void BuildTable(const int8_t* book, const int32_t* q, int shift, uint8_t* table) {
    const PositionPlanes<kPlanes> planes = SplitActivations<kPlanes>(q);
    const PositionPlanes<kPlanes> excess = Excess(planes);
    const __m512i half = _mm512_set1_epi32(RvqHalf(shift));
    const __m512i bias = _mm512_set1_epi32(static_cast<int32_t>(Tables::kBias));
    const __m512i first_two = FirstTwoBytes();
    for (int stage = 0; stage < kRvqStages; ++stage) {
      const int8_t* entries = book + stage * kCodebookEntries * kSubVectorSize;
      __m512i values[4];
      for (int i = 0; i < 4; ++i) {
        const __m512i exact = Values(entries + i * 16 * kSubVectorSize, planes, excess);
        const auto count = static_cast<unsigned>(shift);
        values[i] = _mm512_xor_si512(_mm512_srai_epi32(_mm512_add_epi32(exact, half), count), bias);
      }
      StoreTwoBytes(values, first_two, table);
      if constexpr (!Tables::kRounded) {
        const __m512i last_two = _mm512_add_epi8(first_two, _mm512_set1_epi8(2));
        StoreTwoBytes(values, last_two, table + 2 * kCodebookEntries);
      }
      table += Tables::kStageBytes;
    }
  }

  static void AddBlock(const RvqBlock& block, const uint8_t* table, int shift, int64_t* sums) {
    if (block.rows > kVectorRows) {
      AddVectors<2>(block, table, shift, sums);
    } else {
      AddVectors<1>(block, table, shift, sums);
    }
  }

 private:
  static constexpr int64_t kVectorRows = 64;

  // Of looked-up bytes, for each byte of a value: odd[k] are sums for rows 1, 3, ..., and both[k] those for
  // rows 0, 2, ... and 256 times odd[k], modulo 2^16.
  struct ByteSums {
    __m512i both[Tables::kBytes];
    __m512i odd[Tables::kBytes];
  };

  // Of kVectors * kVectorRows rows at most: what is loaded of a table is good for all of them.
  template <int kVectors>
  static void AddVectors(const RvqBlock& block, const uint8_t* table, int shift, int64_t* sums) {
    __mmask64 in_rows[kVectors];
    ByteSums bytes[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int64_t rows = block.rows - v * kVectorRows;
      in_rows[v] = rows >= kVectorRows ? ~__mmask64{0} : (__mmask64{1} << rows) - 1;
      for (int k = 0; k < Tables::kBytes; ++k) {
        bytes[v].both[k] = _mm512_setzero_si512();
        bytes[v].odd[k] = _mm512_setzero_si512();
      }
    }
    const uint8_t* codes = block.codes;
    for (int64_t p = 0; p < block.positions; ++p) {
      Indices indices[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        indices[v] = LoadIndices(in_rows[v], codes + v * kVectorRows, block);
      }
      AddPosition<kVectors>(indices, table, bytes);
      codes += block.position_stride;
      table += Tables::kTableBytes;
    }
    for (int v = 0; v < kVectors; ++v) {
      AddByteSums(bytes[v], block, v * kVectorRows, shift, sums + v * kVectorRows);
    }
  }

  [[gnu::always_inline]] static Indices LoadIndices(__mmask64 in_rows, const uint8_t* codes,
                                                    const RvqBlock& block) {
    PrefetchCodes(codes, block.plane_bytes, block.position_stride);
    return SplitCodes(_mm512_maskz_loadu_epi8(in_rows, codes),
                      _mm512_maskz_loadu_epi8(in_rows, codes + block.plane_bytes),
                      _mm512_maskz_loadu_epi8(in_rows, codes + 2 * block.plane_bytes));
  }

  template <int kVectors>
  [[gnu::always_inline]] static void AddPosition(const Indices (&indices)[kVectors],
                                                 const uint8_t* table, ByteSums (&sums)[kVectors]) {
#pragma GCC unroll 4
    for (int k = 0; k < Tables::kBytes; ++k) {
#pragma GCC unroll 4
      for (int stage = 0; stage < kRvqStages; ++stage) {
        const __m512i entries =
            _mm512_loadu_si512(table + stage * Tables::kStageBytes + k * kCodebookEntries);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const __m512i found = _mm512_permutexvar_epi8(indices[v].stage[stage], entries);
          sums[v].both[k] = _mm512_add_epi16(sums[v].both[k], found);
          sums[v].odd[k] = _mm512_add_epi16(sums[v].odd[k], _mm512_srli_epi16(found, 8));
        }
      }
    }
  }

  // Of the rows from `first` on of a block.
  static void AddByteSums(const ByteSums& sums_of_bytes, const RvqBlock& block, int64_t first,
                          int shift, int64_t* sums) {
    alignas(64) uint16_t bytes[Tables::kBytes][kVectorRows];
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int k = 0; k < Tables::kBytes; ++k) {
      const __m512i odd = sums_of_bytes.odd[k];
      const __m512i even = _mm512_sub_epi16(sums_of_bytes.both[k], _mm512_slli_epi16(odd, 8));
      _mm512_store_si512(bytes[k], _mm512_permutex2var_epi16(even, low, odd));
      _mm512_store_si512(bytes[k] + 32, _mm512_permutex2var_epi16(even, high, odd));
    }
    const int64_t left = block.rows - first;
    AddBytes<Tables>(bytes, block.positions, left < kVectorRows ? left : kVectorRows, shift, sums);
  }
};

}  // namespace

const RvqKernels& RvqKernelsAvx512(ExpertArithmetic arithmetic) {
  return RvqKernelsOfTarget<Avx512>(arithmetic);
}

}  // namespace shoal

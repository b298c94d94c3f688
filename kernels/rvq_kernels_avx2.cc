// rvq3 with AVX2. As with AVX-512 (rvq_kernels_avx512.cc), nothing here may be an inline function of another
// file. A byte of a table (rvq_byte_tables.h) is looked up for 32 rows at a time, in four parts of the table
// of which blends choose the one that has the entry.
#include <immintrin.h>

#include "kernels/rvq_byte_tables.h"
#include "kernels/rvq_kernels.h"

namespace shoal {
namespace {

constexpr int kPartBytes = 16;

__m256i Load(const uint8_t* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

// The products of an entry's elements with the activations.
__m256i Products(const int8_t* entry, __m256i q) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(entry));
  return _mm256_mullo_epi32(_mm256_cvtepi8_epi32(bytes), q);
}

// Values of eight entries, in order.
__m256i Values(const int8_t* entries, __m256i q) {
  __m256i pairs[4];
  for (int i = 0; i < 4; ++i) {
    pairs[i] = _mm256_hadd_epi32(Products(entries + 2 * i * kSubVectorSize, q),
                                 Products(entries + (2 * i + 1) * kSubVectorSize, q));
  }
  const __m256i first = _mm256_hadd_epi32(pairs[0], pairs[1]);
  const __m256i second = _mm256_hadd_epi32(pairs[2], pairs[3]);
  constexpr int kLowHalves = 0x20;
  constexpr int kHighHalves = 0x31;
  return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, kLowHalves),
                          _mm256_permute2x128_si256(first, second, kHighHalves));
}

// Of indices from 0 to 63. vpshufb looks at the lowest four bits, and a blend at the highest.
struct PartIndices {
  __m256i within;      // the index
  __m256i is_odd;      // its bit 4: of two parts the second
  __m256i is_in_last;  // its bit 5: of four parts one of the last two
};

PartIndices SplitByPart(__m256i indices) {
  return {indices, _mm256_slli_epi16(indices, 3), _mm256_slli_epi16(indices, 2)};
}

__m256i LookupPart(__m256i within, const uint8_t* part) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(part));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), within);
}

__m256i Lookup(const PartIndices& indices, const uint8_t* table) {
  const __m256i first =
      _mm256_blendv_epi8(LookupPart(indices.within, table),
                         LookupPart(indices.within, table + kPartBytes), indices.is_odd);
  const __m256i last =
      _mm256_blendv_epi8(LookupPart(indices.within, table + 2 * kPartBytes),
                         LookupPart(indices.within, table + 3 * kPartBytes), indices.is_odd);
  return _mm256_blendv_epi8(first, last, indices.is_in_last);
}

template <int kPlanes>
class Avx2 {
 public:
  using Tables = RvqByteTables<kPlanes>;
  static constexpr int64_t kBlockRows = 32;

  static void BuildTable(const int8_t* book, const int32_t* q, int shift, uint8_t* table) {
    const __m256i activations = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    const __m256i half = _mm256_set1_epi32(RvqHalf(shift));
    const __m256i bias = _mm256_set1_epi32(static_cast<int32_t>(Tables::kBias));
    for (int stage = 0; stage < kRvqStages; ++stage) {
      const int8_t* entries = book + stage * kCodebookEntries * kSubVectorSize;
      alignas(32) uint32_t values[kCodebookEntries];
      for (int i = 0; i < kCodebookEntries; i += 8) {
        const __m256i exact = Values(entries + i * kSubVectorSize, activations);
        const __m256i rounded = _mm256_srai_epi32(_mm256_add_epi32(exact, half), shift);
        _mm256_store_si256(reinterpret_cast<__m256i*>(values + i), _mm256_xor_si256(rounded, bias));
      }
      for (int k = 0; k < Tables::kBytes; ++k) {
        for (int i = 0; i < kCodebookEntries; ++i) {
          table[k * kCodebookEntries + i] = static_cast<uint8_t>(values[i] >> (8 * k));
        }
      }
      table += Tables::kStageBytes;
    }
  }

  static void AddBlock(const RvqBlock& block, const uint8_t* table, int shift, int64_t* sums) {
    const uint8_t* codes = block.codes;
    ByteSums bytes;
    for (int k = 0; k < Tables::kBytes; ++k) {
      bytes.both[k] = _mm256_setzero_si256();
      bytes.odd[k] = _mm256_setzero_si256();
    }
    for (int64_t p = 0; p < block.positions; ++p) {
      PrefetchCodes(codes, block.plane_bytes, block.position_stride);
      AddPosition(LoadRows(codes, block.rows), LoadRows(codes + block.plane_bytes, block.rows),
                  LoadRows(codes + 2 * block.plane_bytes, block.rows), table, bytes);
      codes += block.position_stride;
      table += Tables::kTableBytes;
    }
    AddByteSums(bytes, block, shift, sums);
  }

 private:
  // Of looked-up bytes, for each byte of a value: odd[k] are sums for rows 1, 3, ..., and both[k] those for
  // rows 0, 2, ... and 256 times odd[k], modulo 2^16.
  struct ByteSums {
    __m256i both[Tables::kBytes];
    __m256i odd[Tables::kBytes];
  };

  static void AddStage(__m256i indices, const uint8_t* table, ByteSums& sums) {
    const PartIndices split = SplitByPart(_mm256_and_si256(indices, _mm256_set1_epi8(63)));
#pragma GCC unroll 4
    for (int k = 0; k < Tables::kBytes; ++k) {
      const __m256i found = Lookup(split, table + k * kCodebookEntries);
      sums.both[k] = _mm256_add_epi16(sums.both[k], found);
      sums.odd[k] = _mm256_add_epi16(sums.odd[k], _mm256_srli_epi16(found, 8));
    }
  }

  static void AddPosition(__m256i low, __m256i middle, __m256i high, const uint8_t* table,
                          ByteSums& sums) {
    const __m256i two = _mm256_set1_epi8(0x03);
    const __m256i four = _mm256_set1_epi8(0x0f);
    AddStage(low, table, sums);
    // What a 16-bit shift brings in from the neighbour is masked away, here or as an index.
    AddStage(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 6), two),
                             _mm256_andnot_si256(two, _mm256_slli_epi16(middle, 2))),
             table + Tables::kStageBytes, sums);
    AddStage(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(middle, 4), four),
                             _mm256_andnot_si256(four, _mm256_slli_epi16(high, 4))),
             table + 2 * Tables::kStageBytes, sums);
    AddStage(_mm256_srli_epi16(high, 2), table + 3 * Tables::kStageBytes, sums);
  }

  static void AddByteSums(const ByteSums& sums_of_bytes, const RvqBlock& block, int shift,
                          int64_t* sums) {
    alignas(32) uint16_t bytes[Tables::kBytes][kBlockRows];
    for (int k = 0; k < Tables::kBytes; ++k) {
      alignas(32) uint16_t even[kBlockRows / 2];
      alignas(32) uint16_t odd[kBlockRows / 2];
      const __m256i odd_sums = sums_of_bytes.odd[k];
      _mm256_store_si256(reinterpret_cast<__m256i*>(odd), odd_sums);
      _mm256_store_si256(reinterpret_cast<__m256i*>(even),
                         _mm256_sub_epi16(sums_of_bytes.both[k], _mm256_slli_epi16(odd_sums, 8)));
      for (int64_t i = 0; i < kBlockRows / 2; ++i) {
        bytes[k][2 * i] = even[i];
        bytes[k][2 * i + 1] = odd[i];
      }
    }
    AddBytes<Tables>(bytes, block.positions, block.rows, shift, sums);
  }

  // `rows` bytes, at most kBlockRows, and zeros behind them.
  static __m256i LoadRows(const uint8_t* bytes, int64_t rows) {
    if (rows == kBlockRows) {
      return Load(bytes);
    }
    alignas(32) uint8_t padded[kBlockRows] = {};
    __builtin_memcpy(padded, bytes, static_cast<size_t>(rows));
    return Load(padded);
  }
};

}  // namespace

const RvqKernels& RvqKernelsAvx2(ExpertArithmetic arithmetic) {
  return RvqKernelsOfTarget<Avx2>(arithmetic);
}

}  // namespace shoal

// rvq3 with AVX-512 (F, BW, VL, VBMI, VNNI). Nothing here may be an inline function of another file:
// the linker would be free to take this file's copy of it for CPUs without AVX-512.
// One vpermb looks a byte of a table (rvq_byte_tables.h) up for 64 rows.
#include <immintrin.h>

#include "kernels/rvq_byte_tables.h"
#include "kernels/rvq_kernels.h"

namespace shoal {
namespace {

constexpr int64_t kBlockRows = 64;

// The eight activations of a position in three planes of signed 7 bits (+ sign), each eight bytes,
// repeated: q = low + 2^7 middle + 2^14 high.
struct ActivationPlanes {
  __m512i low;
  __m512i middle;
  __m512i high;
};

ActivationPlanes SplitActivations(const int32_t* q) {
  const __m256i half = _mm256_set1_epi32(64);
  const __m256i mask = _mm256_set1_epi32(127);
  const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  const __m256i low = _mm256_sub_epi32(_mm256_and_si256(_mm256_add_epi32(all, half), mask), half);
  const __m256i rest = _mm256_srai_epi32(_mm256_sub_epi32(all, low), 7);
  const __m256i middle =
      _mm256_sub_epi32(_mm256_and_si256(_mm256_add_epi32(rest, half), mask), half);
  const __m256i high = _mm256_srai_epi32(_mm256_sub_epi32(rest, middle), 7);
  return {_mm512_broadcastq_epi64(_mm256_cvtepi32_epi8(low)),
          _mm512_broadcastq_epi64(_mm256_cvtepi32_epi8(middle)),
          _mm512_broadcastq_epi64(_mm256_cvtepi32_epi8(high))};
}

// What the dot products below have too much where the entries are 128 too large.
__m512i Excess(__m512i plane) {
  return _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(-128), plane);
}

// Dot products of eight entries (plus 128) with the activations, each as two sums of four products.
__m512i HalfDots(__m512i entries, const ActivationPlanes& q, const ActivationPlanes& excess) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i low = _mm512_sub_epi32(_mm512_dpbusd_epi32(zero, entries, q.low), excess.low);
  const __m512i middle =
      _mm512_sub_epi32(_mm512_dpbusd_epi32(zero, entries, q.middle), excess.middle);
  const __m512i high = _mm512_sub_epi32(_mm512_dpbusd_epi32(zero, entries, q.high), excess.high);
  return _mm512_add_epi32(
      low, _mm512_add_epi32(_mm512_slli_epi32(middle, 7), _mm512_slli_epi32(high, 14)));
}

// Values (plus 2^31) of sixteen entries.
__m512i Values(const int8_t* entries, const ActivationPlanes& q, const ActivationPlanes& excess) {
  const __m512i flip = _mm512_set1_epi8(-128);
  const __m512i first = HalfDots(_mm512_xor_si512(_mm512_loadu_si512(entries), flip), q, excess);
  const __m512i second =
      HalfDots(_mm512_xor_si512(_mm512_loadu_si512(entries + 64), flip), q, excess);
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  const __m512i sums = _mm512_add_epi32(_mm512_permutex2var_epi32(first, even, second),
                                        _mm512_permutex2var_epi32(first, odd, second));
  return _mm512_xor_si512(sums, _mm512_set1_epi32(INT32_MIN));
}

// Stores 64 values of a stage as four planes of bytes.
void StorePlanes(const __m512i* values, uint8_t* table) {
  // Bytes 0, 4, 8, ... of 32 values, and then bytes 1, 5, 9, ...
  alignas(64) uint8_t first_two[64];
  for (int i = 0; i < 32; ++i) {
    first_two[i] = static_cast<uint8_t>(4 * i);
    first_two[32 + i] = static_cast<uint8_t>(4 * i + 1);
  }
  const __m512i planes01 = _mm512_load_si512(first_two);
  const __m512i planes23 = _mm512_add_epi8(planes01, _mm512_set1_epi8(2));
  const __m512i a01 = _mm512_permutex2var_epi8(values[0], planes01, values[1]);
  const __m512i b01 = _mm512_permutex2var_epi8(values[2], planes01, values[3]);
  const __m512i a23 = _mm512_permutex2var_epi8(values[0], planes23, values[1]);
  const __m512i b23 = _mm512_permutex2var_epi8(values[2], planes23, values[3]);
  constexpr int kLowHalves = 0x44;
  constexpr int kHighHalves = 0xee;
  _mm512_storeu_si512(table, _mm512_shuffle_i64x2(a01, b01, kLowHalves));
  _mm512_storeu_si512(table + 64, _mm512_shuffle_i64x2(a01, b01, kHighHalves));
  _mm512_storeu_si512(table + 128, _mm512_shuffle_i64x2(a23, b23, kLowHalves));
  _mm512_storeu_si512(table + 192, _mm512_shuffle_i64x2(a23, b23, kHighHalves));
}

void BuildTables(const int8_t* book, const int32_t* q, int64_t positions, int32_t* tables) {
  auto* table = reinterpret_cast<uint8_t*>(tables);
  for (int64_t p = 0; p < positions; ++p) {
    const ActivationPlanes planes = SplitActivations(q + p * kSubVectorSize);
    const ActivationPlanes excess = {Excess(planes.low), Excess(planes.middle),
                                     Excess(planes.high)};
    for (int stage = 0; stage < kRvqStages; ++stage) {
      const int8_t* entries = book + stage * kCodebookEntries * kSubVectorSize;
      __m512i values[4];
      for (int i = 0; i < 4; ++i) {
        values[i] = Values(entries + i * 16 * kSubVectorSize, planes, excess);
      }
      StorePlanes(values, table);
      table += kCodebookEntries * kBytePlanes;
    }
  }
}

// Sums of looked-up bytes: of plane k, even[k] those of rows 0, 2, ... and odd[k] of rows 1, 3, ...
struct ByteSums {
  __m512i even[kBytePlanes];
  __m512i odd[kBytePlanes];
};

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

void AddPosition(const Indices& indices, const uint8_t* table, ByteSums& sums) {
  const __m512i even_mask = _mm512_set1_epi16(0xff);
#pragma GCC unroll 4
  for (int plane = 0; plane < kBytePlanes; ++plane) {
#pragma GCC unroll 4
    for (int stage = 0; stage < kRvqStages; ++stage) {
      const __m512i entries =
          _mm512_loadu_si512(table + (stage * kBytePlanes + plane) * kCodebookEntries);
      const __m512i found = _mm512_permutexvar_epi8(indices.stage[stage], entries);
      sums.even[plane] = _mm512_add_epi16(sums.even[plane], _mm512_and_si512(found, even_mask));
      sums.odd[plane] = _mm512_add_epi16(sums.odd[plane], _mm512_srli_epi16(found, 8));
    }
  }
}

// sums[r] += the value of the four planes' sums of row r, less `bias`.
void AddByteSums(const ByteSums& bytes, int64_t bias, int64_t rows, int64_t* sums) {
  alignas(64) uint16_t planes[kBytePlanes][kBlockRows];
  const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
  for (int k = 0; k < kBytePlanes; ++k) {
    _mm512_store_si512(planes[k], _mm512_permutex2var_epi16(bytes.even[k], first, bytes.odd[k]));
    _mm512_store_si512(planes[k] + 32,
                       _mm512_permutex2var_epi16(bytes.even[k], second, bytes.odd[k]));
  }
  for (int64_t r = 0; r < rows; ++r) {
    sums[r] += int64_t{planes[0][r]} + (int64_t{planes[1][r]} << 8) +
               (int64_t{planes[2][r]} << 16) + (int64_t{planes[3][r]} << 24) - bias;
  }
}

// Of at most kBlockRows rows (of `plane_bytes` that a plane has) and kBlockPositions positions.
void AddBlock(const uint8_t* codes, int64_t plane_bytes, int64_t position_stride, int64_t positions,
              int64_t rows, const uint8_t* table, int64_t* sums) {
  const __mmask64 in_rows = rows >= kBlockRows ? ~__mmask64{0} : (__mmask64{1} << rows) - 1;
  ByteSums bytes;
  for (int k = 0; k < kBytePlanes; ++k) {
    bytes.even[k] = _mm512_setzero_si512();
    bytes.odd[k] = _mm512_setzero_si512();
  }
  for (int64_t p = 0; p < positions; ++p) {
    PrefetchCodes(codes, plane_bytes, position_stride);
    const Indices indices = SplitCodes(_mm512_maskz_loadu_epi8(in_rows, codes),
                                       _mm512_maskz_loadu_epi8(in_rows, codes + plane_bytes),
                                       _mm512_maskz_loadu_epi8(in_rows, codes + 2 * plane_bytes));
    AddPosition(indices, table, bytes);
    codes += position_stride;
    table += kTableBytes;
  }
  AddByteSums(bytes, kValueBias * kRvqStages * positions, rows, sums);
}

void AddCodes(const uint8_t* codes, int64_t position_stride, int64_t positions, int64_t rows,
              const int32_t* tables, int64_t* sums) {
  AddInBlocks(kBlockRows, codes, position_stride, positions, rows, tables, sums, AddBlock);
}

}  // namespace

const RvqKernels& RvqKernelsAvx512() {
  static constexpr RvqKernels kKernels = {BuildTables, AddCodes};
  return kKernels;
}

}  // namespace shoal

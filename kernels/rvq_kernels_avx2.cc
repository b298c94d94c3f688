// rvq3 with AVX2. As with AVX-512 (rvq_kernels_avx512.cc), nothing here may be an inline function of another
// file. A byte of a table (rvq_byte_tables.h) is looked up for 32 rows at a time, in four parts of the table
// of which vpshufb takes the entry from one and zero from the others.
#include <immintrin.h>

#include "kernels/rvq_byte_tables.h"
#include "kernels/rvq_kernels.h"

namespace shoal {
namespace {

constexpr int64_t kBlockRows = 32;
constexpr int kParts = 4;  // of a plane of a table
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

void BuildTables(const int8_t* book, const int32_t* q, int64_t positions, int32_t* tables) {
  auto* table = reinterpret_cast<uint8_t*>(tables);
  for (int64_t p = 0; p < positions; ++p) {
    const __m256i activations =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + p * kSubVectorSize));
    for (int stage = 0; stage < kRvqStages; ++stage) {
      const int8_t* entries = book + stage * kCodebookEntries * kSubVectorSize;
      alignas(32) uint32_t values[kCodebookEntries];
      for (int i = 0; i < kCodebookEntries; i += 8) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(values + i),
                           Values(entries + i * kSubVectorSize, activations));
      }
      for (int k = 0; k < kBytePlanes; ++k) {
        for (int i = 0; i < kCodebookEntries; ++i) {
          table[k * kCodebookEntries + i] =
              static_cast<uint8_t>((values[i] + static_cast<uint32_t>(kValueBias)) >> (8 * k));
        }
      }
      table += kCodebookEntries * kBytePlanes;
    }
  }
}

// Sums of looked-up bytes: of plane k, even[k] those of rows 0, 2, ... and odd[k] of rows 1, 3, ...
struct ByteSums {
  __m256i even[kBytePlanes];
  __m256i odd[kBytePlanes];
};

// Of indices from 0 to 63, for each part of a table: 0x70 and the index within the part, or 0x80 and
// more where the entry is in another part.
struct PartIndices {
  __m256i part[kParts];
};

PartIndices SplitByPart(__m256i indices) {
  PartIndices split;
  for (int part = 0; part < kParts; ++part) {
    const __m256i within =
        _mm256_sub_epi8(indices, _mm256_set1_epi8(static_cast<char>(kPartBytes * part)));
    split.part[part] = _mm256_adds_epu8(within, _mm256_set1_epi8(0x70));
  }
  return split;
}

__m256i Lookup(const PartIndices& indices, const uint8_t* table) {
  __m256i found = _mm256_setzero_si256();
  for (int part = 0; part < kParts; ++part) {
    const __m256i entries = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + part * kPartBytes)));
    found = _mm256_or_si256(found, _mm256_shuffle_epi8(entries, indices.part[part]));
  }
  return found;
}

void AddStage(__m256i indices, const uint8_t* table, ByteSums& sums) {
  const __m256i even_mask = _mm256_set1_epi16(0xff);
  const PartIndices split = SplitByPart(_mm256_and_si256(indices, _mm256_set1_epi8(63)));
#pragma GCC unroll 4
  for (int plane = 0; plane < kBytePlanes; ++plane) {
    const __m256i found = Lookup(split, table + plane * kCodebookEntries);
    sums.even[plane] = _mm256_add_epi16(sums.even[plane], _mm256_and_si256(found, even_mask));
    sums.odd[plane] = _mm256_add_epi16(sums.odd[plane], _mm256_srli_epi16(found, 8));
  }
}

void AddPosition(__m256i low, __m256i middle, __m256i high, const uint8_t* table, ByteSums& sums) {
  constexpr int kStageBytes = kCodebookEntries * kBytePlanes;
  const __m256i two = _mm256_set1_epi8(0x03);
  const __m256i four = _mm256_set1_epi8(0x0f);
  AddStage(low, table, sums);
  // What a 16-bit shift brings in from the neighbour is masked away, here or as an index.
  AddStage(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 6), two),
                           _mm256_andnot_si256(two, _mm256_slli_epi16(middle, 2))),
           table + kStageBytes, sums);
  AddStage(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(middle, 4), four),
                           _mm256_andnot_si256(four, _mm256_slli_epi16(high, 4))),
           table + 2 * kStageBytes, sums);
  AddStage(_mm256_srli_epi16(high, 2), table + 3 * kStageBytes, sums);
}

// sums[r] += the value of the four planes' sums of row r, less `bias`.
void AddByteSums(const ByteSums& bytes, int64_t bias, int64_t rows, int64_t* sums) {
  alignas(32) uint16_t even[kBytePlanes][kBlockRows / 2];
  alignas(32) uint16_t odd[kBytePlanes][kBlockRows / 2];
  for (int k = 0; k < kBytePlanes; ++k) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(even[k]), bytes.even[k]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(odd[k]), bytes.odd[k]);
  }
  int64_t values[kBlockRows];
  for (int64_t i = 0; i < kBlockRows / 2; ++i) {
    values[2 * i] = int64_t{even[0][i]} + (int64_t{even[1][i]} << 8) + (int64_t{even[2][i]} << 16) +
                    (int64_t{even[3][i]} << 24) - bias;
    values[2 * i + 1] = int64_t{odd[0][i]} + (int64_t{odd[1][i]} << 8) +
                        (int64_t{odd[2][i]} << 16) + (int64_t{odd[3][i]} << 24) - bias;
  }
  for (int64_t r = 0; r < rows; ++r) {
    sums[r] += values[r];
  }
}

// `rows` bytes, at most kBlockRows, and zeros behind them.
__m256i LoadRows(const uint8_t* bytes, int64_t rows) {
  if (rows == kBlockRows) {
    return Load(bytes);
  }
  alignas(32) uint8_t padded[kBlockRows] = {};
  __builtin_memcpy(padded, bytes, static_cast<size_t>(rows));
  return Load(padded);
}

// Of at most kBlockRows rows (of `plane_bytes` that a plane has) and kBlockPositions positions.
void AddBlock(const uint8_t* codes, int64_t plane_bytes, int64_t position_stride, int64_t positions,
              int64_t rows, const uint8_t* table, int64_t* sums) {
  ByteSums bytes;
  for (int k = 0; k < kBytePlanes; ++k) {
    bytes.even[k] = _mm256_setzero_si256();
    bytes.odd[k] = _mm256_setzero_si256();
  }
  for (int64_t p = 0; p < positions; ++p) {
    PrefetchCodes(codes, plane_bytes, position_stride);
    AddPosition(LoadRows(codes, rows), LoadRows(codes + plane_bytes, rows),
                LoadRows(codes + 2 * plane_bytes, rows), table, bytes);
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

const RvqKernels& RvqKernelsAvx2() {
  static constexpr RvqKernels kKernels = {BuildTables, AddCodes};
  return kKernels;
}

}  // namespace shoal

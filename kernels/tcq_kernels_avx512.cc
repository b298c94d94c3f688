// tcq3 with AVX-512 (F, BW, VL, VBMI, VNNI). Nothing here may be an inline function of another file: the linker
// would be free to take this file's copy of it for CPUs without AVX-512.
//
// A vector holds a byte of 16 rows of the four groups of a bundle. Half a window is four bits in a row of the
// chain's stream; vpermb looks only at the lowest six of an index, so tables that repeat after 16 entries spare
// the masks. A dot product of four bytes then adds the four groups.
#include <immintrin.h>

#include "kernels/tcq_kernels.h"

namespace shoal {
namespace {

constexpr int64_t kVectorRows = 16;
constexpr int64_t kBlockRows = 256;
// So many columns can be summed in 32 bits: 127 * 64 * 32 * kBlockBundles < 2^31.
constexpr int64_t kBlockBundles = 8192;
constexpr int64_t kBundleBytesAhead = 2048;  // to ask for

struct Tables {
  __m512i low;
  __m512i high;
};

Tables LoadTables() {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
          _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
}

// The bytes of the rows in `mask`, those of a row in its 32 bits whatever the number of groups.
template <int kGroups>
__m512i LoadRows(__mmask16 mask, const uint8_t* bytes) {
  if constexpr (kGroups == 4) {
    return _mm512_maskz_loadu_epi32(mask, bytes);
  } else if constexpr (kGroups == 2) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, bytes));
  } else {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, bytes));
  }
}

// mask ? first : second, bit by bit.
template <int kMask>
__m512i Join(__m512i first, __m512i second) {
  return _mm512_ternarylogic_epi32(_mm512_set1_epi8(kMask), first, second, 0xca);
}

// The bits of a row and the last of the row before: three planes and `before`, eight bits each.
struct Bits {
  __m512i before;
  __m512i first;
  __m512i second;
  __m512i third;
};

// table[w & 15] + table[w >> 4] of the windows of the eight columns. The lower half of the window of column t
// are bits 3 t - 5 to 3 t - 2 of the row, the upper half bits 3 t - 1 to 3 t + 2.
template <int kColumn>
__m512i Values(const Bits& bits, const Tables& tables) {
  __m512i low;
  __m512i high;
  if constexpr (kColumn == 0) {
    low = _mm512_srli_epi16(bits.before, 3);
    high = Join<0x01>(_mm512_srli_epi16(bits.before, 7), _mm512_slli_epi16(bits.first, 1));
  } else if constexpr (kColumn == 1) {
    low = Join<0x03>(_mm512_srli_epi16(bits.before, 6), _mm512_slli_epi16(bits.first, 2));
    high = _mm512_srli_epi16(bits.first, 2);
  } else if constexpr (kColumn == 2) {
    low = _mm512_srli_epi16(bits.first, 1);
    high = Join<0x07>(_mm512_srli_epi16(bits.first, 5), _mm512_slli_epi16(bits.second, 3));
  } else if constexpr (kColumn == 3) {
    low = _mm512_srli_epi16(bits.first, 4);
    high = bits.second;
  } else if constexpr (kColumn == 4) {
    low = Join<0x01>(_mm512_srli_epi16(bits.first, 7), _mm512_slli_epi16(bits.second, 1));
    high = _mm512_srli_epi16(bits.second, 3);
  } else if constexpr (kColumn == 5) {
    low = _mm512_srli_epi16(bits.second, 2);
    high = Join<0x03>(_mm512_srli_epi16(bits.second, 6), _mm512_slli_epi16(bits.third, 2));
  } else if constexpr (kColumn == 6) {
    low = Join<0x07>(_mm512_srli_epi16(bits.second, 5), _mm512_slli_epi16(bits.third, 3));
    high = _mm512_srli_epi16(bits.third, 1);
  } else {
    low = bits.third;
    high = _mm512_srli_epi16(bits.third, 4);
  }
  return _mm512_add_epi8(_mm512_permutexvar_epi8(low, tables.low),
                         _mm512_permutexvar_epi8(high, tables.high));
}

// Sums of 16 rows, of each plane of the activations.
struct PlaneSums {
  __m512i low;
  __m512i middle;
  __m512i high;
};

template <int kColumn>
void AddColumn(const Bits& bits, const Tables& tables, const int32_t* words, PlaneSums& sums) {
  const __m512i values = Values<kColumn>(bits, tables);
  sums.low = _mm512_dpbusd_epi32(sums.low, values, _mm512_set1_epi32(words[kColumn]));
  sums.middle = _mm512_dpbusd_epi32(sums.middle, values,
                                    _mm512_set1_epi32(words[kTcqGroupColumns + kColumn]));
  sums.high = _mm512_dpbusd_epi32(sums.high, values,
                                  _mm512_set1_epi32(words[2 * kTcqGroupColumns + kColumn]));
}

// Adds a bundle's columns of `rows` rows. `codes` is the first of them in plane 0, and `is_first` says that no
// row is before it.
template <int kGroups>
void AddBundle(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows,
               const Tables& tables, const int32_t* words, PlaneSums* sums) {
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    const uint8_t* here = codes + r * kGroups;
    const __mmask16 mask =
        rows - r >= kVectorRows ? 0xffff : static_cast<__mmask16>((1 << (rows - r)) - 1);
    _mm_prefetch(reinterpret_cast<const char*>(here + kBundleBytesAhead), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + plane_bytes + kBundleBytesAhead),
                 _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + 2 * plane_bytes + kBundleBytesAhead),
                 _MM_HINT_T0);
    Bits bits;
    bits.first = LoadRows<kGroups>(mask, here);
    bits.second = LoadRows<kGroups>(mask, here + plane_bytes);
    bits.third = LoadRows<kGroups>(mask, here + 2 * plane_bytes);
    bits.before = is_first && r == 0
                      ? _mm512_alignr_epi32(bits.third, _mm512_set1_epi8(kTcqStart), 15)
                      : LoadRows<kGroups>(mask, here + 2 * plane_bytes - kGroups);
    PlaneSums sum = sums[r / kVectorRows];
    AddColumn<0>(bits, tables, words, sum);
    AddColumn<1>(bits, tables, words, sum);
    AddColumn<2>(bits, tables, words, sum);
    AddColumn<3>(bits, tables, words, sum);
    AddColumn<4>(bits, tables, words, sum);
    AddColumn<5>(bits, tables, words, sum);
    AddColumn<6>(bits, tables, words, sum);
    AddColumn<7>(bits, tables, words, sum);
    sums[r / kVectorRows] = sum;
  }
}

void AddPlaneSums(const PlaneSums* planes, int64_t rows, int64_t* sums) {
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    alignas(64) int32_t low[kVectorRows];
    alignas(64) int32_t middle[kVectorRows];
    alignas(64) int32_t high[kVectorRows];
    const PlaneSums& sum = planes[r / kVectorRows];
    _mm512_store_si512(low, sum.low);
    _mm512_store_si512(middle, sum.middle);
    _mm512_store_si512(high, sum.high);
    const int64_t count = rows - r < kVectorRows ? rows - r : kVectorRows;
    for (int64_t i = 0; i < count; ++i) {
      sums[r + i] += low[i] + int64_t{middle[i]} * 128 + int64_t{high[i]} * 16384;
    }
  }
}

// Of at most kBlockRows rows and kBlockBundles bundles.
template <int kGroups>
void AddBlock(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows,
              int64_t bundles, const Tables& tables, const int32_t* words, int64_t* sums) {
  PlaneSums planes[kBlockRows / kVectorRows];
  for (int64_t i = 0; i * kVectorRows < rows; ++i) {
    planes[i] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  }
  for (int64_t b = 0; b < bundles; ++b) {
    AddBundle<kGroups>(codes + b * kTcqPlanes * plane_bytes, plane_bytes, is_first, rows, tables,
                       words + b * kTcqBundleWords, planes);
  }
  AddPlaneSums(planes, rows, sums);
}

template <int kGroups>
void AddBlocks(const TcqShape& shape, const uint8_t* codes, const int32_t* words, int64_t* sums) {
  const Tables tables = LoadTables();
  const int64_t plane_bytes = shape.rows * kGroups;
  for (int64_t b = 0; b < shape.bundles; b += kBlockBundles) {
    const int64_t bundles = shape.bundles - b < kBlockBundles ? shape.bundles - b : kBlockBundles;
    for (int64_t r = 0; r < shape.rows; r += kBlockRows) {
      const int64_t rows = shape.rows - r < kBlockRows ? shape.rows - r : kBlockRows;
      AddBlock<kGroups>(codes + b * kTcqPlanes * plane_bytes + r * kGroups, plane_bytes, r == 0,
                        rows, bundles, tables, words + b * kTcqBundleWords, sums + r);
    }
  }
}

void AddCodes(const TcqShape& shape, const uint8_t* codes, const int32_t* words, int64_t* sums) {
  if (shape.bundle_groups == 4) {
    AddBlocks<4>(shape, codes, words, sums);
  } else if (shape.bundle_groups == 2) {
    AddBlocks<2>(shape, codes, words, sums);
  } else {
    AddBlocks<1>(shape, codes, words, sums);
  }
}

}  // namespace

const TcqKernels& TcqKernelsAvx512() {
  static constexpr TcqKernels kKernels = {AddCodes};
  return kKernels;
}

}  // namespace shoal

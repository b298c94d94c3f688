// tcq3 with AVX-512 (F, BW, VL, VBMI, VNNI). Nothing here may be an inline function of another file: the linker
// would be free to take this file's copy of it for CPUs without AVX-512.
//
// A vector holds a byte of 16 rows of the four groups of a bundle. Half a window is four bits in a row of the
// chain's stream; vpermb looks only at the lowest six of an index, so tables that repeat after 16 entries spare
// the masks. A dot product of four bytes then adds the four groups.
#include <immintrin.h>

#include <utility>

#include "kernels/tcq_blocks.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_tiles.h"

namespace shoal {
namespace {

constexpr int64_t kRowsOfVector = 16;
struct HalfTables {
  __m512i low;
  __m512i high;
};

HalfTables LoadHalfTables() {
  return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
          _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
}

// The bytes of the rows in `mask`, those of a row in its 32 bits whatever the number of groups.
template <int kGroups>
[[gnu::always_inline]] inline __m512i LoadRows(__mmask16 mask, const uint8_t* bytes) {
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

// Of `rows` rows, of which the first kRowsOfVector are looked at.
template <int kGroups>
[[gnu::always_inline]] inline Bits LoadBits(const uint8_t* codes, int64_t plane_bytes,
                                            bool is_first, int64_t rows) {
  const __mmask16 mask = rows >= kRowsOfVector ? 0xffff : static_cast<__mmask16>((1 << rows) - 1);
  const uint8_t* third = codes + 2 * plane_bytes;
  Bits bits;
  bits.first = LoadRows<kGroups>(mask, codes);
  bits.second = LoadRows<kGroups>(mask, codes + plane_bytes);
  bits.third = LoadRows<kGroups>(mask, third);
  bits.before = is_first ? _mm512_alignr_epi32(bits.third, _mm512_set1_epi8(kTcqStart), 15)
                         : LoadRows<kGroups>(mask, third - kGroups);
  return bits;
}

// low[w & 15] + high[w >> 4] of the windows of the eight columns. The lower half of the window of column t
// are bits 3 t - 5 to 3 t - 2 of the row, the upper half bits 3 t - 1 to 3 t + 2.
template <int kColumn>
[[gnu::always_inline]] inline __m512i Values(const Bits& bits, const HalfTables& tables) {
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

// sum += the dot products of values with one word. By hand, because g++ 12 copies each sum of the intrinsic from one
// register to another and to memory where there are many.
[[gnu::always_inline]] inline void AddProducts(__m512i values, const int32_t* word, __m512i& sum) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(values), "m"(*word));
}

// Of one column; `word` is that of the lowest plane.
[[gnu::always_inline]] inline void AddProducts(__m512i values, const int32_t* word,
                                               PlaneSums& sums) {
  AddProducts(values, word, sums.low);
  AddProducts(values, word + kTcqGroupColumns, sums.middle);
  AddProducts(values, word + 2 * kTcqGroupColumns, sums.high);
}

template <int kColumn>
[[gnu::always_inline]] inline void AddColumn(const Bits& bits, const HalfTables& tables,
                                             const int32_t* words, PlaneSums& sums) {
  AddProducts(Values<kColumn>(bits, tables), words + kColumn, sums);
}

class Avx512 {
 public:
  static constexpr int64_t kVectorRows = kRowsOfVector;
  static constexpr int64_t kVectorBytes = sizeof(__m512i);
  static constexpr int kTileRows = 8;  // 24 registers of sums
  using Tables = HalfTables;
  using Sums = PlaneSums;

  static Tables LoadTables() { return LoadHalfTables(); }
  static Sums Zero() {
    return {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
  }
  static void Store(const Sums& sums, int32_t (*planes)[kVectorRows]) {
    _mm512_store_si512(planes[0], sums.low);
    _mm512_store_si512(planes[1], sums.middle);
    _mm512_store_si512(planes[2], sums.high);
  }

  template <int kGroups>
  [[gnu::always_inline]] static void AddRows(const uint8_t* codes, int64_t plane_bytes,
                                             bool is_first, int64_t rows, const Tables& tables,
                                             const int32_t* words, Sums& sums) {
    const Bits bits = LoadBits<kGroups>(codes, plane_bytes, is_first, rows);
    Sums sum = sums;
    AddColumn<0>(bits, tables, words, sum);
    AddColumn<1>(bits, tables, words, sum);
    AddColumn<2>(bits, tables, words, sum);
    AddColumn<3>(bits, tables, words, sum);
    AddColumn<4>(bits, tables, words, sum);
    AddColumn<5>(bits, tables, words, sum);
    AddColumn<6>(bits, tables, words, sum);
    AddColumn<7>(bits, tables, words, sum);
    sums = sum;
  }

  template <int kGroups>
  [[gnu::always_inline]] static void Decode(const uint8_t* codes, int64_t plane_bytes,
                                            bool is_first, int64_t rows, const Tables& tables,
                                            uint8_t* values) {
    const Bits bits = LoadBits<kGroups>(codes, plane_bytes, is_first, rows);
    auto* columns = reinterpret_cast<__m512i*>(values);
    _mm512_store_si512(columns, Values<0>(bits, tables));
    _mm512_store_si512(columns + 1, Values<1>(bits, tables));
    _mm512_store_si512(columns + 2, Values<2>(bits, tables));
    _mm512_store_si512(columns + 3, Values<3>(bits, tables));
    _mm512_store_si512(columns + 4, Values<4>(bits, tables));
    _mm512_store_si512(columns + 5, Values<5>(bits, tables));
    _mm512_store_si512(columns + 6, Values<6>(bits, tables));
    _mm512_store_si512(columns + 7, Values<7>(bits, tables));
  }

  template <int kRows>
  static void Multiply(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                       Sums* sums) {
    MultiplyRows(std::make_integer_sequence<int, kRows>(), tile, bundles, words, sums);
  }

 private:
  template <int... kRow>
  static void MultiplyRows(std::integer_sequence<int, kRow...> /*rows*/, const uint8_t* tile,
                           int64_t bundles, const int32_t* const* words, Sums* sums) {
    Sums sum[] = {((void)kRow, Zero())...};
    for (int64_t b = 0; b < bundles; ++b) {
      for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
        const __m512i values = _mm512_load_si512(tile + (b * kTcqGroupColumns + t) * kVectorBytes);
        (AddProducts(values, words[kRow] + b * kTcqBundleWords + t, sum[kRow]), ...);
      }
    }
    ((sums[kRow] = sum[kRow]), ...);
  }
};

}  // namespace

const TcqKernels& TcqKernelsAvx512() {
  static constexpr TcqKernels kKernels = {AddTcqCodes<Avx512>, AddTcqCodesToRows<Avx512>};
  return kKernels;
}

}  // namespace shoal

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
#include "kernels/tcq_windows.h"

namespace shoal {
namespace {

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

// Sums of 16 rows, of each plane of the activations.
template <int kPlanes>
struct PlaneSums {
  __m512i plane[kPlanes];
};

// sum += the dot products of values with one word. By hand, because g++ 12 copies each sum of the intrinsic from
// one register to another and to memory where there are many.
[[gnu::always_inline]] inline void AddProducts(__m512i values, const int32_t* word, __m512i& sum) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(values), "m"(*word));
}

// Of one column; `word` is that of the lowest plane.
template <int kPlanes>
[[gnu::always_inline]] inline void AddColumn(__m512i values, const int32_t* word,
                                             PlaneSums<kPlanes>& sums) {
  AddProducts(values, word, sums.plane[0]);
  AddProducts(values, word + kTcqGroupColumns, sums.plane[1]);
  if constexpr (kPlanes == kExactPlanes) {
    AddProducts(values, word + 2 * kTcqGroupColumns, sums.plane[2]);
  }
}

template <int kActivationPlanes>
class Avx512 {
 public:
  static constexpr int64_t kVectorRows = 16;
  static constexpr int64_t kVectorBytes = sizeof(__m512i);
  static constexpr int kPlanes = kActivationPlanes;
  static constexpr int kTileRows = 24 / kPlanes;  // 24 registers of sums
  using Vector = __m512i;
  struct Tables {
    __m512i low;
    __m512i high;
  };
  using Sums = PlaneSums<kPlanes>;

  static Tables LoadTables() {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
            _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
  }
  static Sums Zero() {
    Sums sums;
#pragma GCC unroll 3
    for (__m512i& plane : sums.plane) {
      plane = _mm512_setzero_si512();
    }
    return sums;
  }
  static void Store(const Sums& sums, int32_t (*planes)[kVectorRows]) {
#pragma GCC unroll 3
    for (int plane = 0; plane < kPlanes; ++plane) {
      _mm512_store_si512(planes[plane], sums.plane[plane]);
    }
  }

  // Bytes have no shifts of their own: bits of neighbours come in above and below.
  template <int kShift>
  static Vector Right(Vector bits) {
    return _mm512_srli_epi16(bits, kShift);
  }
  template <int kShift>
  static Vector Left(Vector bits) {
    return _mm512_slli_epi16(bits, kShift);
  }
  template <int kShift>
  static Vector Half(Vector bits) {
    return kShift == 0 ? bits : Right<kShift>(bits);
  }
  template <int kMask>
  static Vector Join(Vector first, Vector second) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi8(kMask), first, second, 0xca);
  }
  static Vector Look(Vector table, Vector index) { return _mm512_permutexvar_epi8(index, table); }
  static Vector AddBytes(Vector a, Vector b) { return _mm512_add_epi8(a, b); }

  template <int kGroups>
  [[gnu::always_inline]] static TcqBits<Avx512<kPlanes>> LoadBits(const uint8_t* codes,
                                                                  int64_t plane_bytes,
                                                                  bool is_first, int64_t rows) {
    const __mmask16 mask = rows >= kVectorRows ? 0xffff : static_cast<__mmask16>((1 << rows) - 1);
    const uint8_t* third = codes + 2 * plane_bytes;
    TcqBits<Avx512<kPlanes>> bits;
    bits.first = LoadRows<kGroups>(mask, codes);
    bits.second = LoadRows<kGroups>(mask, codes + plane_bytes);
    bits.third = LoadRows<kGroups>(mask, third);
    bits.before = is_first ? _mm512_alignr_epi32(bits.third, _mm512_set1_epi8(kTcqStart), 15)
                           : LoadRows<kGroups>(mask, third - kGroups);
    return bits;
  }

  [[gnu::always_inline]] static void AddRows(const TcqBits<Avx512<kPlanes>>& bits,
                                             const Tables& tables, const int32_t* words,
                                             Sums& sums) {
    Sums sum = sums;
    AddColumn(TcqValues<Avx512<kPlanes>, 0>(bits, tables), words, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 1>(bits, tables), words + 1, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 2>(bits, tables), words + 2, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 3>(bits, tables), words + 3, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 4>(bits, tables), words + 4, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 5>(bits, tables), words + 5, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 6>(bits, tables), words + 6, sum);
    AddColumn(TcqValues<Avx512<kPlanes>, 7>(bits, tables), words + 7, sum);
    sums = sum;
  }

  static void StoreValues(Vector values, uint8_t* to) { _mm512_store_si512(to, values); }

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
        const Vector values = _mm512_load_si512(tile + (b * kTcqGroupColumns + t) * kVectorBytes);
        (AddColumn(values, words[kRow] + b * TcqBundleWords(kPlanes) + t, sum[kRow]), ...);
      }
    }
    ((sums[kRow] = sum[kRow]), ...);
  }
};

}  // namespace

const TcqKernels& TcqKernelsAvx512(ExpertArithmetic arithmetic) {
  return TcqKernelsOfTarget<Avx512>(arithmetic);
}

}  // namespace shoal

// tcq3 with AVX2. As with AVX-512 (tcq_kernels_avx512.cc), nothing here may be an inline function of another
// file. A vector holds a byte of 8 rows of the four groups of a bundle.
#include <immintrin.h>

#include <cstring>

#include "kernels/tcq_blocks.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_tiles.h"
#include "kernels/tcq_windows.h"

namespace shoal {
namespace {

constexpr int64_t kRowsOfVector = 8;

// The bytes of eight rows, those of a row in its 32 bits whatever the number of groups.
template <int kGroups>
[[gnu::always_inline]] inline __m256i LoadRows(const uint8_t* bytes) {
  if constexpr (kGroups == 4) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
  } else if constexpr (kGroups == 2) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  } else {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  }
}

// Of `rows` rows; zeros behind them where they are fewer.
template <int kGroups>
[[gnu::always_inline]] inline __m256i LoadRows(const uint8_t* bytes, int64_t rows) {
  if (rows >= kRowsOfVector) {
    return LoadRows<kGroups>(bytes);
  }
  uint8_t padded[kRowsOfVector * kGroups] = {};
  std::memcpy(padded, bytes, static_cast<size_t>(rows * kGroups));
  return LoadRows<kGroups>(padded);
}

// Two columns at once: a product of two values with seven bits of activations is at most 2 * 127 * 64, so two
// of them fit 16 bits. `word` is that of the even column.
[[gnu::always_inline]] inline __m256i AddProducts(__m256i sums, __m256i even, __m256i odd,
                                                  const int32_t* word) {
  const __m256i products = _mm256_add_epi16(_mm256_maddubs_epi16(even, _mm256_set1_epi32(word[0])),
                                            _mm256_maddubs_epi16(odd, _mm256_set1_epi32(word[1])));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}

template <int kActivationPlanes>
class Avx2 {
 public:
  static constexpr int64_t kVectorRows = kRowsOfVector;
  static constexpr int64_t kVectorBytes = sizeof(__m256i);
  static constexpr int kPlanes = kActivationPlanes;
  static constexpr int kTileRows =
      kPlanes == kExactPlanes ? 3 : 4;  // eight or nine registers of sums
  using Vector = __m256i;
  struct Tables {
    __m256i low;
    __m256i high;
  };
  // Of eight rows, of each plane of the activations.
  struct Sums {
    __m256i plane[kPlanes];
  };

  static Tables LoadTables() {
    return {
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
  }
  static Sums Zero() {
    Sums sums;
#pragma GCC unroll 3
    for (__m256i& plane : sums.plane) {
      plane = _mm256_setzero_si256();
    }
    return sums;
  }
  static void Store(const Sums& sums, int32_t (*planes)[kVectorRows]) {
    for (int plane = 0; plane < kPlanes; ++plane) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(planes[plane]), sums.plane[plane]);
    }
  }

  // Bytes have no shifts of their own: bits of neighbours come in above and below. vpshufb wants the four above
  // an index to be zeros.
  template <int kShift>
  static Vector Right(Vector bits) {
    return _mm256_srli_epi16(bits, kShift);
  }
  template <int kShift>
  static Vector Left(Vector bits) {
    return _mm256_slli_epi16(bits, kShift);
  }
  template <int kShift>
  static Vector Half(Vector bits) {
    return _mm256_and_si256(Right<kShift>(bits), _mm256_set1_epi8(0x0f));
  }
  template <int kMask>
  static Vector Join(Vector first, Vector second) {
    return _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi8(kMask)),
                           _mm256_and_si256(second, _mm256_set1_epi8(0x0f & ~kMask)));
  }
  static Vector Look(Vector table, Vector index) { return _mm256_shuffle_epi8(table, index); }
  static Vector AddBytes(Vector a, Vector b) { return _mm256_add_epi8(a, b); }

  template <int kGroups>
  [[gnu::always_inline]] static TcqBits<Avx2<kPlanes>> LoadBits(const uint8_t* codes,
                                                                int64_t plane_bytes, bool is_first,
                                                                int64_t rows) {
    const uint8_t* third = codes + 2 * plane_bytes;
    TcqBits<Avx2<kPlanes>> bits;
    bits.first = LoadRows<kGroups>(codes, rows);
    bits.second = LoadRows<kGroups>(codes + plane_bytes, rows);
    bits.third = LoadRows<kGroups>(third, rows);
    if (is_first) {
      const __m256i one_later = _mm256_set_epi32(6, 5, 4, 3, 2, 1, 0, 0);
      bits.before = _mm256_blend_epi32(_mm256_permutevar8x32_epi32(bits.third, one_later),
                                       _mm256_set1_epi8(kTcqStart), 1);
    } else {
      bits.before = LoadRows<kGroups>(third - kGroups, rows);
    }
    return bits;
  }

  [[gnu::always_inline]] static void AddRows(const TcqBits<Avx2<kPlanes>>& bits,
                                             const Tables& tables, const int32_t* words,
                                             Sums& sums) {
    Sums sum = sums;
    AddTwoColumns<0>(bits, tables, words, sum);
    AddTwoColumns<2>(bits, tables, words, sum);
    AddTwoColumns<4>(bits, tables, words, sum);
    AddTwoColumns<6>(bits, tables, words, sum);
    sums = sum;
  }

  static void StoreValues(Vector values, uint8_t* to) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(to), values);
  }

  template <int kRows>
  static void Multiply(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                       Sums* sums) {
    __m256i sum[kRows * kPlanes];
#pragma GCC unroll 9
    for (__m256i& start : sum) {
      start = _mm256_setzero_si256();
    }
    const auto* values = reinterpret_cast<const __m256i*>(tile);
    for (int64_t b = 0; b < bundles; ++b) {
      for (int64_t t = 0; t < kTcqGroupColumns; t += 2) {
        const __m256i even = _mm256_load_si256(values + b * kTcqGroupColumns + t);
        const __m256i odd = _mm256_load_si256(values + b * kTcqGroupColumns + t + 1);
#pragma GCC unroll 9
        for (int i = 0; i < kRows * kPlanes; ++i) {
          const int32_t* word =
              words[i / kPlanes] + b * TcqBundleWords(kPlanes) + i % kPlanes * kTcqGroupColumns + t;
          sum[i] = AddProducts(sum[i], even, odd, word);
        }
      }
    }
#pragma GCC unroll 9
    for (int i = 0; i < kRows * kPlanes; ++i) {
      sums[i / kPlanes].plane[i % kPlanes] = sum[i];
    }
  }

 private:
  template <int kColumn>
  [[gnu::always_inline]] static void AddTwoColumns(const TcqBits<Avx2<kPlanes>>& bits,
                                                   const Tables& tables, const int32_t* words,
                                                   Sums& sums) {
    const __m256i even = TcqValues<Avx2<kPlanes>, kColumn>(bits, tables);
    const __m256i odd = TcqValues<Avx2<kPlanes>, kColumn + 1>(bits, tables);
#pragma GCC unroll 3
    for (int plane = 0; plane < kPlanes; ++plane) {
      sums.plane[plane] =
          AddProducts(sums.plane[plane], even, odd, words + plane * kTcqGroupColumns + kColumn);
    }
  }
};

}  // namespace

const TcqKernels& TcqKernelsAvx2(ExpertArithmetic arithmetic) {
  return TcqKernelsOfTarget<Avx2>(arithmetic);
}

}  // namespace shoal

// tcq3 with AVX2. As with AVX-512 (tcq_kernels_avx512.cc), nothing here may be an inline function of another
// file. A vector holds a byte of 8 rows of the four groups of a bundle.
#include <immintrin.h>

#include <cstring>

#include "kernels/tcq_blocks.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_tiles.h"

namespace shoal {
namespace {

constexpr int64_t kRowsOfVector = 8;
struct HalfTables {
  __m256i low;
  __m256i high;
};

HalfTables LoadHalfTables() {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
}

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

// Of fewer rows, zeros behind them.
template <int kGroups>
__m256i LoadLastRows(const uint8_t* bytes, int64_t rows) {
  uint8_t padded[kRowsOfVector * kGroups] = {};
  std::memcpy(padded, bytes, static_cast<size_t>(rows * kGroups));
  return LoadRows<kGroups>(padded);
}

// kMask ? first : second, bit by bit, of the lowest four.
template <int kMask>
__m256i Join(__m256i first, __m256i second) {
  return _mm256_or_si256(_mm256_and_si256(first, _mm256_set1_epi8(kMask)),
                         _mm256_and_si256(second, _mm256_set1_epi8(0x0f & ~kMask)));
}
template <int kShift>
__m256i Half(__m256i bits) {
  return _mm256_and_si256(_mm256_srli_epi16(bits, kShift), _mm256_set1_epi8(0x0f));
}

// The bits of a row and the last of the row before: three planes and `before`, eight bits each.
struct Bits {
  __m256i before;
  __m256i first;
  __m256i second;
  __m256i third;
};

// Of `rows` rows, of which the first kRowsOfVector are looked at.
template <int kGroups>
[[gnu::always_inline]] inline Bits LoadBits(const uint8_t* codes, int64_t plane_bytes,
                                            bool is_first, int64_t rows) {
  const uint8_t* third = codes + 2 * plane_bytes;
  Bits bits;
  if (rows >= kRowsOfVector) {
    bits.first = LoadRows<kGroups>(codes);
    bits.second = LoadRows<kGroups>(codes + plane_bytes);
    bits.third = LoadRows<kGroups>(third);
  } else {
    bits.first = LoadLastRows<kGroups>(codes, rows);
    bits.second = LoadLastRows<kGroups>(codes + plane_bytes, rows);
    bits.third = LoadLastRows<kGroups>(third, rows);
  }
  if (is_first) {
    const __m256i one_later = _mm256_set_epi32(6, 5, 4, 3, 2, 1, 0, 0);
    bits.before = _mm256_blend_epi32(_mm256_permutevar8x32_epi32(bits.third, one_later),
                                     _mm256_set1_epi8(kTcqStart), 1);
  } else {
    bits.before = rows >= kRowsOfVector ? LoadRows<kGroups>(third - kGroups)
                                        : LoadLastRows<kGroups>(third - kGroups, rows);
  }
  return bits;
}

// low[w & 15] + high[w >> 4] of the windows of a column. The lower half of the window of column t are bits
// 3 t - 5 to 3 t - 2 of the row, the upper half bits 3 t - 1 to 3 t + 2.
template <int kColumn>
[[gnu::always_inline]] inline __m256i Values(const Bits& bits, const HalfTables& tables) {
  __m256i low;
  __m256i high;
  if constexpr (kColumn == 0) {
    low = Half<3>(bits.before);
    high = Join<0x01>(_mm256_srli_epi16(bits.before, 7), _mm256_slli_epi16(bits.first, 1));
  } else if constexpr (kColumn == 1) {
    low = Join<0x03>(_mm256_srli_epi16(bits.before, 6), _mm256_slli_epi16(bits.first, 2));
    high = Half<2>(bits.first);
  } else if constexpr (kColumn == 2) {
    low = Half<1>(bits.first);
    high = Join<0x07>(_mm256_srli_epi16(bits.first, 5), _mm256_slli_epi16(bits.second, 3));
  } else if constexpr (kColumn == 3) {
    low = Half<4>(bits.first);
    high = Half<0>(bits.second);
  } else if constexpr (kColumn == 4) {
    low = Join<0x01>(_mm256_srli_epi16(bits.first, 7), _mm256_slli_epi16(bits.second, 1));
    high = Half<3>(bits.second);
  } else if constexpr (kColumn == 5) {
    low = Half<2>(bits.second);
    high = Join<0x03>(_mm256_srli_epi16(bits.second, 6), _mm256_slli_epi16(bits.third, 2));
  } else if constexpr (kColumn == 6) {
    low = Join<0x07>(_mm256_srli_epi16(bits.second, 5), _mm256_slli_epi16(bits.third, 3));
    high = Half<1>(bits.third);
  } else {
    low = Half<0>(bits.third);
    high = Half<4>(bits.third);
  }
  return _mm256_add_epi8(_mm256_shuffle_epi8(tables.low, low),
                         _mm256_shuffle_epi8(tables.high, high));
}

// Sums of eight rows, of each plane of the activations.
struct PlaneSums {
  __m256i plane[kActivationPlanes];
};

// Two columns at once: a product of two values with seven bits of activations is at most 2 * 127 * 64, so two
// of them fit 16 bits. `word` is that of the even column.
[[gnu::always_inline]] inline __m256i AddProducts(__m256i sums, __m256i even, __m256i odd,
                                                  const int32_t* word) {
  const __m256i products = _mm256_add_epi16(_mm256_maddubs_epi16(even, _mm256_set1_epi32(word[0])),
                                            _mm256_maddubs_epi16(odd, _mm256_set1_epi32(word[1])));
  return _mm256_add_epi32(sums, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
}

template <int kColumn>
[[gnu::always_inline]] inline void AddTwoColumns(const Bits& bits, const HalfTables& tables,
                                                 const int32_t* words, PlaneSums& sums) {
  const __m256i even = Values<kColumn>(bits, tables);
  const __m256i odd = Values<kColumn + 1>(bits, tables);
#pragma GCC unroll 3
  for (int plane = 0; plane < kActivationPlanes; ++plane) {
    sums.plane[plane] =
        AddProducts(sums.plane[plane], even, odd, words + plane * kTcqGroupColumns + kColumn);
  }
}

struct Avx2 {
  static constexpr int64_t kVectorRows = kRowsOfVector;
  static constexpr int64_t kVectorBytes = sizeof(__m256i);
  static constexpr int kTileRows = 3;  // nine registers of sums
  using Tables = HalfTables;
  using Sums = PlaneSums;

  static Tables LoadTables() { return LoadHalfTables(); }
  static Sums Zero() {
    return {{_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256()}};
  }
  static void Store(const Sums& sums, int32_t (*planes)[kVectorRows]) {
    for (int plane = 0; plane < kActivationPlanes; ++plane) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(planes[plane]), sums.plane[plane]);
    }
  }

  template <int kGroups>
  [[gnu::always_inline]] static void AddRows(const uint8_t* codes, int64_t plane_bytes,
                                             bool is_first, int64_t rows, const Tables& tables,
                                             const int32_t* words, Sums& sums) {
    const Bits bits = LoadBits<kGroups>(codes, plane_bytes, is_first, rows);
    Sums sum = sums;
    AddTwoColumns<0>(bits, tables, words, sum);
    AddTwoColumns<2>(bits, tables, words, sum);
    AddTwoColumns<4>(bits, tables, words, sum);
    AddTwoColumns<6>(bits, tables, words, sum);
    sums = sum;
  }

  template <int kGroups>
  [[gnu::always_inline]] static void Decode(const uint8_t* codes, int64_t plane_bytes,
                                            bool is_first, int64_t rows, const Tables& tables,
                                            uint8_t* values) {
    const Bits bits = LoadBits<kGroups>(codes, plane_bytes, is_first, rows);
    auto* columns = reinterpret_cast<__m256i*>(values);
    _mm256_store_si256(columns, Values<0>(bits, tables));
    _mm256_store_si256(columns + 1, Values<1>(bits, tables));
    _mm256_store_si256(columns + 2, Values<2>(bits, tables));
    _mm256_store_si256(columns + 3, Values<3>(bits, tables));
    _mm256_store_si256(columns + 4, Values<4>(bits, tables));
    _mm256_store_si256(columns + 5, Values<5>(bits, tables));
    _mm256_store_si256(columns + 6, Values<6>(bits, tables));
    _mm256_store_si256(columns + 7, Values<7>(bits, tables));
  }

  template <int kRows>
  static void Multiply(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                       Sums* sums) {
    __m256i sum[kRows * kActivationPlanes];
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
        for (int i = 0; i < kRows * kActivationPlanes; ++i) {
          const int32_t* word = words[i / kActivationPlanes] + b * kTcqBundleWords +
                                i % kActivationPlanes * kTcqGroupColumns + t;
          sum[i] = AddProducts(sum[i], even, odd, word);
        }
      }
    }
#pragma GCC unroll 9
    for (int i = 0; i < kRows * kActivationPlanes; ++i) {
      sums[i / kActivationPlanes].plane[i % kActivationPlanes] = sum[i];
    }
  }
};

}  // namespace

const TcqKernels& TcqKernelsAvx2() {
  static constexpr TcqKernels kKernels = {AddTcqCodes<Avx2>, AddTcqCodesToRows<Avx2>};
  return kKernels;
}

}  // namespace shoal

// tcq3 with AVX2. As with AVX-512 (tcq_kernels_avx512.cc), nothing here may be an inline function of another
// file. A vector holds a byte of 8 rows of the four groups of a bundle.
#include <immintrin.h>

#include <cstring>

#include "kernels/tcq_kernels.h"

namespace shoal {
namespace {

constexpr int64_t kVectorRows = 8;
constexpr int64_t kBlockRows = 256;
// So many columns can be summed in 32 bits: 127 * 64 * 32 * kBlockBundles < 2^31.
constexpr int64_t kBlockBundles = 8192;
constexpr int64_t kBundleBytesAhead = 2048;  // to ask for

struct Tables {
  __m256i low;
  __m256i high;
};

Tables LoadTables() {
  return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqLow))),
          _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kTcqHigh)))};
}

// The bytes of eight rows, those of a row in its 32 bits whatever the number of groups.
template <int kGroups>
__m256i LoadRows(const uint8_t* bytes) {
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
  uint8_t padded[kVectorRows * kGroups] = {};
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

template <int kGroups>
Bits LoadBits(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows) {
  const uint8_t* third = codes + 2 * plane_bytes;
  Bits bits;
  if (rows >= kVectorRows) {
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
    bits.before = rows >= kVectorRows ? LoadRows<kGroups>(third - kGroups)
                                      : LoadLastRows<kGroups>(third - kGroups, rows);
  }
  return bits;
}

// low[w & 15] + high[w >> 4] of the windows of a column. The lower half of the window of column t are bits
// 3 t - 5 to 3 t - 2 of the row, the upper half bits 3 t - 1 to 3 t + 2.
template <int kColumn>
__m256i Values(const Bits& bits, const Tables& tables) {
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
// of them fit 16 bits.
template <int kColumn>
void AddTwoColumns(const Bits& bits, const Tables& tables, const int32_t* words, PlaneSums& sums) {
  const __m256i even = Values<kColumn>(bits, tables);
  const __m256i odd = Values<kColumn + 1>(bits, tables);
#pragma GCC unroll 3
  for (int plane = 0; plane < kActivationPlanes; ++plane) {
    const int32_t* word = words + plane * kTcqGroupColumns + kColumn;
    const __m256i products =
        _mm256_add_epi16(_mm256_maddubs_epi16(even, _mm256_set1_epi32(word[0])),
                         _mm256_maddubs_epi16(odd, _mm256_set1_epi32(word[1])));
    sums.plane[plane] =
        _mm256_add_epi32(sums.plane[plane], _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
}

// Adds a bundle's columns of `rows` rows. `codes` is the first of them in plane 0, and `is_first` says that no
// row is before it.
template <int kGroups>
void AddBundle(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows,
               const Tables& tables, const int32_t* words, PlaneSums* sums) {
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    const uint8_t* here = codes + r * kGroups;
    _mm_prefetch(reinterpret_cast<const char*>(here + kBundleBytesAhead), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + plane_bytes + kBundleBytesAhead),
                 _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(here + 2 * plane_bytes + kBundleBytesAhead),
                 _MM_HINT_T0);
    const Bits bits = LoadBits<kGroups>(here, plane_bytes, is_first && r == 0, rows - r);
    PlaneSums sum = sums[r / kVectorRows];
    AddTwoColumns<0>(bits, tables, words, sum);
    AddTwoColumns<2>(bits, tables, words, sum);
    AddTwoColumns<4>(bits, tables, words, sum);
    AddTwoColumns<6>(bits, tables, words, sum);
    sums[r / kVectorRows] = sum;
  }
}

void AddPlaneSums(const PlaneSums* planes, int64_t rows, int64_t* sums) {
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    alignas(32) int32_t sum[kActivationPlanes][kVectorRows];
    for (int plane = 0; plane < kActivationPlanes; ++plane) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(sum[plane]),
                         planes[r / kVectorRows].plane[plane]);
    }
    const int64_t count = rows - r < kVectorRows ? rows - r : kVectorRows;
    for (int64_t i = 0; i < count; ++i) {
      sums[r + i] += sum[0][i] + int64_t{sum[1][i]} * 128 + int64_t{sum[2][i]} * 16384;
    }
  }
}

// Of at most kBlockRows rows and kBlockBundles bundles.
template <int kGroups>
void AddBlock(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows,
              int64_t bundles, const Tables& tables, const int32_t* words, int64_t* sums) {
  PlaneSums planes[kBlockRows / kVectorRows];
  for (int64_t i = 0; i * kVectorRows < rows; ++i) {
    for (__m256i& plane : planes[i].plane) {
      plane = _mm256_setzero_si256();
    }
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

const TcqKernels& TcqKernelsAvx2() {
  static constexpr TcqKernels kKernels = {AddCodes};
  return kKernels;
}

}  // namespace shoal

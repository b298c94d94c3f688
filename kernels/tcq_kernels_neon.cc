// tcq3 with NEON and its dot product (ARMv8.2). As with AVX-512 (tcq_kernels_avx512.cc), nothing here may be an
// inline function of another file. A vector holds a byte of 4 rows of the four groups of a bundle. Values are at
// most 124, so that they are the same as signed bytes.
#include <arm_neon.h>

#include <cstring>

#include "kernels/tcq_blocks.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_tiles.h"
#include "kernels/tcq_windows.h"

namespace shoal {
namespace {

constexpr int64_t kRowsOfVector = 4;

// The bytes of `rows` rows, of which the first four are looked at, those of a row in its 32 bits whatever the
// number of groups; zeros behind them where they are fewer.
template <int kGroups>
[[gnu::always_inline]] inline uint8x16_t LoadRows(const uint8_t* bytes, int64_t rows) {
  uint8_t row_bytes[kRowsOfVector * kGroups] = {};
  if (rows >= kRowsOfVector) {
    std::memcpy(row_bytes, bytes, sizeof(row_bytes));
  } else {
    std::memcpy(row_bytes, bytes, static_cast<size_t>(rows * kGroups));
  }
  if constexpr (kGroups == 4) {
    return vld1q_u8(row_bytes);
  } else if constexpr (kGroups == 2) {
    return vreinterpretq_u8_u32(vmovl_u16(vreinterpret_u16_u8(vld1_u8(row_bytes))));
  } else {
    uint32_t packed;
    std::memcpy(&packed, row_bytes, sizeof(packed));
    const uint8x8_t four = vreinterpret_u8_u32(vdup_n_u32(packed));
    return vreinterpretq_u8_u32(vmovl_u16(vget_low_u16(vmovl_u8(four))));
  }
}

template <int kActivationPlanes>
class Neon {
 public:
  static constexpr int64_t kVectorRows = kRowsOfVector;
  static constexpr int64_t kVectorBytes = sizeof(uint8x16_t);
  static constexpr int kPlanes = kActivationPlanes;
  static constexpr int kTileRows = 24 / kPlanes;  // 24 registers of sums
  using Vector = uint8x16_t;
  struct Tables {
    uint8x16_t low;
    uint8x16_t high;
  };
  // Of four rows, of each plane of the activations.
  struct Sums {
    int32x4_t plane[kPlanes];
  };

  static Tables LoadTables() { return {vld1q_u8(kTcqLow), vld1q_u8(kTcqHigh)}; }
  static Sums Zero() {
    Sums sums;
#pragma GCC unroll 3
    for (int32x4_t& plane : sums.plane) {
      plane = vdupq_n_s32(0);
    }
    return sums;
  }
  static void Store(const Sums& sums, int32_t (*planes)[kVectorRows]) {
    for (int plane = 0; plane < kPlanes; ++plane) {
      vst1q_s32(planes[plane], sums.plane[plane]);
    }
  }

  template <int kShift>
  static Vector Right(Vector bits) {
    return vshrq_n_u8(bits, kShift);
  }
  template <int kShift>
  static Vector Left(Vector bits) {
    return vshlq_n_u8(bits, kShift);
  }
  // An index beyond a table finds zero, so the four bits above have to be.
  template <int kShift>
  static Vector Half(Vector bits) {
    if constexpr (kShift == 0) {
      return vandq_u8(bits, vdupq_n_u8(0x0f));
    } else {
      return vandq_u8(Right<kShift>(bits), vdupq_n_u8(0x0f));
    }
  }
  template <int kMask>
  static Vector Join(Vector first, Vector second) {
    return vorrq_u8(vandq_u8(first, vdupq_n_u8(kMask)),
                    vandq_u8(second, vdupq_n_u8(0x0f & ~kMask)));
  }
  static Vector Look(Vector table, Vector index) { return vqtbl1q_u8(table, index); }
  static Vector AddBytes(Vector a, Vector b) { return vaddq_u8(a, b); }

  template <int kGroups>
  [[gnu::always_inline]] static TcqBits<Neon<kPlanes>> LoadBits(const uint8_t* codes,
                                                                int64_t plane_bytes, bool is_first,
                                                                int64_t rows) {
    const uint8_t* third = codes + 2 * plane_bytes;
    TcqBits<Neon<kPlanes>> bits;
    bits.first = LoadRows<kGroups>(codes, rows);
    bits.second = LoadRows<kGroups>(codes + plane_bytes, rows);
    bits.third = LoadRows<kGroups>(third, rows);
    bits.before = is_first ? vextq_u8(vdupq_n_u8(kTcqStart), bits.third, 12)
                           : LoadRows<kGroups>(third - kGroups, rows);
    return bits;
  }

  [[gnu::always_inline]] static void AddRows(const TcqBits<Neon<kPlanes>>& bits,
                                             const Tables& tables, const int32_t* words,
                                             Sums& sums) {
    Sums sum = sums;
    AddColumn(TcqValues<Neon<kPlanes>, 0>(bits, tables), words, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 1>(bits, tables), words + 1, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 2>(bits, tables), words + 2, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 3>(bits, tables), words + 3, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 4>(bits, tables), words + 4, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 5>(bits, tables), words + 5, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 6>(bits, tables), words + 6, sum);
    AddColumn(TcqValues<Neon<kPlanes>, 7>(bits, tables), words + 7, sum);
    sums = sum;
  }

  static void StoreValues(Vector values, uint8_t* to) { vst1q_u8(to, values); }

  template <int kRows>
  static void Multiply(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                       Sums* sums) {
    Sums sum[kRows];
#pragma GCC unroll 12
    for (Sums& start : sum) {
      start = Zero();
    }
    for (int64_t b = 0; b < bundles; ++b) {
      for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
        const Vector values = vld1q_u8(tile + (b * kTcqGroupColumns + t) * kVectorBytes);
#pragma GCC unroll 12
        for (int a = 0; a < kRows; ++a) {
          AddColumn(values, words[a] + b * TcqBundleWords(kPlanes) + t, sum[a]);
        }
      }
    }
#pragma GCC unroll 12
    for (int a = 0; a < kRows; ++a) {
      sums[a] = sum[a];
    }
  }

 private:
  // `word` is that of the lowest plane.
  [[gnu::always_inline]] static void AddColumn(Vector values, const int32_t* word, Sums& sums) {
#pragma GCC unroll 3
    for (int plane = 0; plane < kPlanes; ++plane) {
      sums.plane[plane] =
          vdotq_s32(sums.plane[plane], vreinterpretq_s8_u8(values),
                    vreinterpretq_s8_s32(vdupq_n_s32(word[plane * kTcqGroupColumns])));
    }
  }
};

}  // namespace

const TcqKernels& TcqKernelsNeon(ExpertArithmetic arithmetic) {
  return TcqKernelsOfTarget<Neon>(arithmetic);
}

}  // namespace shoal

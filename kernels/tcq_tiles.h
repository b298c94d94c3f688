// What the vector versions of TcqKernels::add_codes_to_rows share: a tile of codes is decoded once and multiplied
// with every row of activations. Everything here is static, as in tcq_blocks.h.
//
// A target has, beside what tcq_blocks.h asks of it,
//   kVectorBytes  of a vector of values
//   kTileRows     rows of activations whose sums stay in registers while they go through a tile
//   StoreValues   a vector of values, to memory
//   Multiply      a tile's products with up to kTileRows rows of activations
#ifndef SHOAL_KERNELS_TCQ_TILES_H_
#define SHOAL_KERNELS_TCQ_TILES_H_

#include <cstdint>

#include "kernels/tcq_blocks.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_windows.h"

namespace shoal {

// A tile is a vector of rows wide, and stays in the nearest cache with the activations that go through it.
static constexpr int64_t kTcqTileBundles = 32;

// The rows of a matrix that are wanted, of which a vector at a time is decoded.
struct TcqStrip {
  const uint8_t* codes = nullptr;  // of the matrix
  int64_t plane_bytes = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The values of a vector of rows of one bundle, column by column.
template <typename Target>
[[gnu::always_inline]] static inline void DecodeBundle(const TcqBits<Target>& bits,
                                                       const typename Target::Tables& tables,
                                                       uint8_t* values) {
  constexpr int64_t kBytes = Target::kVectorBytes;
  Target::StoreValues(TcqValues<Target, 0>(bits, tables), values);
  Target::StoreValues(TcqValues<Target, 1>(bits, tables), values + kBytes);
  Target::StoreValues(TcqValues<Target, 2>(bits, tables), values + 2 * kBytes);
  Target::StoreValues(TcqValues<Target, 3>(bits, tables), values + 3 * kBytes);
  Target::StoreValues(TcqValues<Target, 4>(bits, tables), values + 4 * kBytes);
  Target::StoreValues(TcqValues<Target, 5>(bits, tables), values + 5 * kBytes);
  Target::StoreValues(TcqValues<Target, 6>(bits, tables), values + 6 * kBytes);
  Target::StoreValues(TcqValues<Target, 7>(bits, tables), values + 7 * kBytes);
}

template <typename Target, int kGroups>
static void DecodeTile(const TcqStrip& strip, int64_t row, int64_t first_bundle, int64_t bundles,
                       uint8_t* tile) {
  const typename Target::Tables tables = Target::LoadTables();
  for (int64_t b = 0; b < bundles; ++b) {
    const uint8_t* here =
        strip.codes + (first_bundle + b) * kTcqPlanes * strip.plane_bytes + row * kGroups;
    // The same bundle of the next vector of rows is decoded when this tile has been multiplied.
    for (int plane = 0; plane < kTcqPlanes; ++plane) {
      __builtin_prefetch(here + plane * strip.plane_bytes + Target::kVectorRows * kGroups);
    }
    const auto bits =
        Target::template LoadBits<kGroups>(here, strip.plane_bytes, row == 0, strip.end - row);
    DecodeBundle<Target>(bits, tables, tile + b * kTcqGroupColumns * Target::kVectorBytes);
  }
}

// Of kRows rows of activations, whose words begin at `first_word`; sums of a row are `stride` apart.
template <typename Target, int kRows>
static void AddTile(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                    int64_t first_word, int64_t matrix_rows, int64_t* sums, int64_t stride) {
  const int32_t* from[kRows];
  for (int a = 0; a < kRows; ++a) {
    from[a] = words[a] + first_word;
  }
  typename Target::Sums block[kRows];
  Target::template Multiply<kRows>(tile, bundles, from, block);
  for (int a = 0; a < kRows; ++a) {
    AddPlanes<Target>(block + a, matrix_rows, sums + a * stride);
  }
}

// All rows of activations, kRows at a time and those that are left in ever smaller numbers.
template <typename Target, int kRows>
static void AddTileToRows(const uint8_t* tile, int64_t bundles, const int32_t* const* words,
                          int64_t num_rows, int64_t first_word, int64_t matrix_rows, int64_t* sums,
                          int64_t stride) {
  int64_t a = 0;
  for (; a + kRows <= num_rows; a += kRows) {
    AddTile<Target, kRows>(tile, bundles, words + a, first_word, matrix_rows, sums + a * stride,
                           stride);
  }
  if constexpr (kRows > 1) {
    AddTileToRows<Target, kRows / 2>(tile, bundles, words + a, num_rows - a, first_word,
                                     matrix_rows, sums + a * stride, stride);
  }
}

template <typename Target, int kGroups>
static void AddStrip(const TcqStrip& strip, int64_t all_bundles, const int32_t* const* words,
                     int64_t num_rows, int64_t* sums) {
  alignas(64) uint8_t tile[kTcqTileBundles * kTcqGroupColumns * Target::kVectorBytes];
  const int64_t stride = strip.end - strip.begin;
  for (int64_t row = strip.begin; row < strip.end; row += Target::kVectorRows) {
    const int64_t left = strip.end - row;
    const int64_t matrix_rows = left < Target::kVectorRows ? left : Target::kVectorRows;
    for (int64_t b = 0; b < all_bundles; b += kTcqTileBundles) {
      const int64_t bundles = all_bundles - b < kTcqTileBundles ? all_bundles - b : kTcqTileBundles;
      DecodeTile<Target, kGroups>(strip, row, b, bundles, tile);
      AddTileToRows<Target, Target::kTileRows>(tile, bundles, words, num_rows,
                                               b * TcqBundleWords(Target::kPlanes), matrix_rows,
                                               sums + row - strip.begin, stride);
    }
  }
}

// TcqKernels::add_codes_to_rows.
template <typename Target>
static void AddTcqCodesToRows(const TcqShape& shape, const uint8_t* codes, int64_t begin,
                              int64_t end, const int32_t* const* words, int64_t num_rows,
                              int64_t* sums) {
  const TcqStrip strip = {codes, shape.rows * shape.bundle_groups, begin, end};
  if (shape.bundle_groups == 4) {
    AddStrip<Target, 4>(strip, shape.bundles, words, num_rows, sums);
  } else if (shape.bundle_groups == 2) {
    AddStrip<Target, 2>(strip, shape.bundles, words, num_rows, sums);
  } else {
    AddStrip<Target, 1>(strip, shape.bundles, words, num_rows, sums);
  }
}

// Those of both arithmetics, of the classes of one instruction set.
template <template <int kPlanes> class Target>
static const TcqKernels& TcqKernelsOfTarget(ExpertArithmetic arithmetic) {
  using Exact = Target<kExactPlanes>;
  using Fast = Target<kFastPlanes>;
  static constexpr TcqKernels kExact = {kExactPlanes, AddTcqCodes<Exact>, AddTcqCodesToRows<Exact>};
  static constexpr TcqKernels kFast = {kFastPlanes, AddTcqCodes<Fast>, AddTcqCodesToRows<Fast>};
  return arithmetic == ExpertArithmetic::kExact ? kExact : kFast;
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_TILES_H_

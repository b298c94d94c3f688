// Trellis-coded quantization at 3.00 bits a weight (tcq3): shape, table and packing shared by encoder and
// apply kernels. docs/format.md draws it.
//
// The columns of a matrix are cut into groups of eight. A group's weights, row by row from the first to the
// last, are one chain of symbols of three bits; the bits of a chain are one stream, least significant first,
// with kTcqStart before its begin. Weight t of a chain is
//
//   weight = row_scale * value(w),   value(w) = low[w & 15] + high[w >> 4] - 64,
//
// where the window w is its own symbol and the five bits before it, the oldest lowest. So every value depends
// on its symbol and on a state of five bits: a bitshift trellis (Tseng et al., "QTIP: quantization with
// trellises and incoherence processing", 2024) with a table that is the sum of two of sixteen entries.
//
// A row of a group is three bytes, byte k in plane k. One, two or four groups are stored side by side, so that
// 32 bits hold the same row of four groups: a bundle is plane [3] of row [rows] of group [1, 2 or 4].
#ifndef SHOAL_KERNELS_TCQ_H_
#define SHOAL_KERNELS_TCQ_H_

#include <cstdint>

namespace shoal {

inline constexpr int64_t kTcqGroupColumns = 8;
inline constexpr int kTcqSymbolBits = 3;
inline constexpr int kTcqStates = 32;    // the five bits before a symbol
inline constexpr int kTcqWindows = 256;  // states x symbols
inline constexpr int kTcqPlanes = 3;     // bytes of a row of a group
inline constexpr int kTcqCenter = 64;

// Found for Gaussian weights by Lloyd's method from random beginnings, and then by annealing of the rounded
// entries: a squared error of 0.0213. low + high is from 1 to 124, so it is a byte of either sign.
inline constexpr uint8_t kTcqLow[16] = {32, 22, 51, 12, 42, 64, 25, 34,
                                        32, 43, 46, 35, 23, 14, 1,  55};
inline constexpr uint8_t kTcqHigh[16] = {49, 32, 29, 12, 6,  44, 26, 35,
                                         60, 21, 41, 0,  17, 55, 36, 24};
// The byte before a chain, whose five highest bits are its first state: the one from which a chain's first
// weights lose least.
inline constexpr uint8_t kTcqStart = 8 * 27;
// What a standard deviation of the weights is in units of the table, where the table fits best.
inline constexpr double kTcqDeviation = 1 / 0.05018;

// From -63 to 60.
inline int32_t TcqValue(uint32_t window) {
  return int32_t{kTcqLow[window & 15]} + int32_t{kTcqHigh[window >> 4]} - kTcqCenter;
}

// How a matrix is stored.
struct TcqShape {
  int64_t rows = 0;
  int64_t bundle_groups = 0;  // 1, 2 or 4
  int64_t bundles = 0;

  // Columns with those that fill up the last bundle.
  int64_t padded_columns() const { return bundles * bundle_groups * kTcqGroupColumns; }
  int64_t bundle_bytes() const { return kTcqPlanes * rows * bundle_groups; }
  int64_t bytes() const { return bundles * bundle_bytes(); }
  // Of the first byte of a row of a group; those of the next planes are rows * bundle_groups apart.
  int64_t ByteOf(int64_t group, int64_t row) const {
    return group / bundle_groups * bundle_bytes() + row * bundle_groups + group % bundle_groups;
  }
};

// REQUIRES: rows and columns are at least 1.
inline TcqShape TcqShapeOf(int64_t rows, int64_t columns) {
  const int64_t groups = (columns + kTcqGroupColumns - 1) / kTcqGroupColumns;
  TcqShape shape;
  shape.rows = rows;
  shape.bundle_groups = groups >= 3 ? 4 : groups;
  shape.bundles = (groups + shape.bundle_groups - 1) / shape.bundle_groups;
  return shape;
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_H_

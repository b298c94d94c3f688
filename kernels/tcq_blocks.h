// What the vector versions of tcq_kernels.h share: the way through a matrix in vectors of rows. Everything here
// is static: each file that includes it is compiled for an instruction set of its own, and the linker must not
// take one's copy for another.
//
// A target is a class with
//   kVectorRows         rows of a vector
//   Tables, LoadTables  what all vectors need
//   kPlanes             of the activations
//   Sums                of the rows of a vector, one of 32 bits for each plane
//   Zero, Store         their begin, and their end as numbers [plane][row]
//   LoadBits            of a vector of rows of one bundle (tcq_windows.h)
//   AddRows             adds their products
#ifndef SHOAL_KERNELS_TCQ_BLOCKS_H_
#define SHOAL_KERNELS_TCQ_BLOCKS_H_

#include <cstdint>

#include "kernels/tcq_kernels.h"

namespace shoal {

// Rows whose sums are kept while the columns are gone through: so many that codes are read in the order in which
// they lie, but for matrices with more.
static constexpr int64_t kTcqBlockRows = 4096;
// So many columns can be summed in 32 bits: 127 * 64 * 32 * kTcqBlockBundles < 2^31.
static constexpr int64_t kTcqBlockBundles = 8192;
// How far ahead codes are asked for: about what comes from memory while one waits for it. Behind a unit the next
// one lies.
static constexpr int64_t kTcqBytesAhead = 32768;

static inline void PrefetchPlanes(const uint8_t* codes, int64_t plane_bytes) {
  for (int plane = 0; plane < kTcqPlanes; ++plane) {
    __builtin_prefetch(codes + plane * plane_bytes + kTcqBytesAhead);
  }
}

template <typename Target>
static void AddPlanes(const typename Target::Sums* block, int64_t rows, int64_t* sums) {
  constexpr int64_t kVectorRows = Target::kVectorRows;
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    alignas(64) int32_t plane[Target::kPlanes][kVectorRows];
    Target::Store(block[r / kVectorRows], plane);
    const int64_t count = rows - r < kVectorRows ? rows - r : kVectorRows;
    for (int64_t i = 0; i < count; ++i) {
      int64_t sum = plane[0][i] + int64_t{plane[1][i]} * 128;
      if constexpr (Target::kPlanes == kExactPlanes) {
        sum += int64_t{plane[2][i]} * 16384;
      }
      sums[r + i] += sum;
    }
  }
}

// Of at most kTcqBlockRows rows and kTcqBlockBundles bundles. `codes` is the first row's byte in plane 0 of the
// first bundle, and `is_first` says that no row is before it.
template <typename Target, int kGroups>
static void AddBlock(const uint8_t* codes, int64_t plane_bytes, bool is_first, int64_t rows,
                     int64_t bundles, const int32_t* words, int64_t* sums) {
  constexpr int64_t kVectorRows = Target::kVectorRows;
  const typename Target::Tables tables = Target::LoadTables();
  typename Target::Sums block[kTcqBlockRows / kVectorRows];
  for (int64_t r = 0; r < rows; r += kVectorRows) {
    block[r / kVectorRows] = Target::Zero();
  }
  for (int64_t b = 0; b < bundles; ++b) {
    for (int64_t r = 0; r < rows; r += kVectorRows) {
      const uint8_t* here = codes + b * kTcqPlanes * plane_bytes + r * kGroups;
      PrefetchPlanes(here, plane_bytes);
      const auto bits =
          Target::template LoadBits<kGroups>(here, plane_bytes, is_first && r == 0, rows - r);
      Target::AddRows(bits, tables, words + b * TcqBundleWords(Target::kPlanes),
                      block[r / kVectorRows]);
    }
  }
  AddPlanes<Target>(block, rows, sums);
}

template <typename Target, int kGroups>
static void AddBlocks(const TcqShape& shape, const uint8_t* codes, const int32_t* words,
                      int64_t* sums) {
  const int64_t plane_bytes = shape.rows * kGroups;
  for (int64_t b = 0; b < shape.bundles; b += kTcqBlockBundles) {
    const int64_t bundles =
        shape.bundles - b < kTcqBlockBundles ? shape.bundles - b : kTcqBlockBundles;
    for (int64_t r = 0; r < shape.rows; r += kTcqBlockRows) {
      const int64_t rows = shape.rows - r < kTcqBlockRows ? shape.rows - r : kTcqBlockRows;
      AddBlock<Target, kGroups>(codes + b * kTcqPlanes * plane_bytes + r * kGroups, plane_bytes,
                                r == 0, rows, bundles, words + b * TcqBundleWords(Target::kPlanes),
                                sums + r);
    }
  }
}

// TcqKernels::add_codes.
template <typename Target>
static void AddTcqCodes(const TcqShape& shape, const uint8_t* codes, const int32_t* words,
                        int64_t* sums) {
  if (shape.bundle_groups == 4) {
    AddBlocks<Target, 4>(shape, codes, words, sums);
  } else if (shape.bundle_groups == 2) {
    AddBlocks<Target, 2>(shape, codes, words, sums);
  } else {
    AddBlocks<Target, 1>(shape, codes, words, sums);
  }
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_BLOCKS_H_

#include "kernels/tcq_row.h"

#include <algorithm>
#include <numeric>

#include "kernels/activation_quant.h"
#include "kernels/tcq.h"
#include "kernels/tcq_kernels.h"

namespace shoal {
namespace {

// The activations of a bundle, in order of columns, as the words of TcqKernels.
void PackBundle(const int32_t* q, int64_t groups, int planes, int32_t* words) {
  constexpr int64_t kMostColumns = 4 * kTcqGroupColumns;
  const int64_t columns = groups * kTcqGroupColumns;
  uint8_t digits[kMostPlanes][kMostColumns] = {};  // to the base of 128, from -64 to 63
  for (int64_t i = 0; i < columns; ++i) {
    const int32_t low = ((q[i] + 64) & 127) - 64;
    const int32_t rest = (q[i] - low) >> 7;
    const int32_t middle = ((rest + 64) & 127) - 64;
    digits[0][i] = static_cast<uint8_t>(low);
    digits[1][i] = static_cast<uint8_t>(middle);
    digits[2][i] = static_cast<uint8_t>((rest - middle) >> 7);  // 0 where there are two planes
  }
  for (int plane = 0; plane < planes; ++plane) {
    for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
      const uint8_t* bytes = digits[plane] + t;
      words[plane * kTcqGroupColumns + t] =
          static_cast<int32_t>(uint32_t{bytes[0]} | uint32_t{bytes[kTcqGroupColumns]} << 8 |
                               uint32_t{bytes[2 * kTcqGroupColumns]} << 16 |
                               uint32_t{bytes[3 * kTcqGroupColumns]} << 24);
    }
  }
}

}  // namespace

int64_t TcqRowWords(int64_t columns) {
  return TcqShapeOf(1, columns).bundles * TcqBundleWords(kMostPlanes);
}

int64_t TcqRowScratchBytes(int64_t columns) {
  return TcqShapeOf(1, columns).padded_columns() *
         static_cast<int64_t>(sizeof(double) + sizeof(int32_t));
}

TcqPreparedRow PrepareTcqRow(const InputRotation& rotation, int planes, std::span<const float> x,
                             std::span<int32_t> words, std::span<std::byte> scratch) {
  const TcqShape shape = TcqShapeOf(1, static_cast<int64_t>(x.size()));
  auto* rotated = reinterpret_cast<double*>(scratch.data());
  const std::span<int32_t> q(reinterpret_cast<int32_t*>(rotated + shape.padded_columns()),
                             static_cast<size_t>(shape.padded_columns()));
  std::fill(q.begin() + static_cast<int64_t>(x.size()), q.end(), 0);
  rotation.Rotate(x, {rotated, x.size()});
  TcqPreparedRow row;
  row.scale =
      rotation.normalization() *
      QuantizeActivations(std::span<const double>(rotated, x.size()), planes, q.first(x.size()));
  row.offset = -kTcqCenter * std::accumulate(q.begin(), q.end(), int64_t{0});
  for (int64_t b = 0; b < shape.bundles; ++b) {
    PackBundle(q.data() + b * shape.bundle_groups * kTcqGroupColumns, shape.bundle_groups, planes,
               words.data() + b * TcqBundleWords(planes));
  }
  row.words = words.data();
  return row;
}

}  // namespace shoal

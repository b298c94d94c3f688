// An activation row as the kernels of tcq3 want it: rotated, quantized and cut into planes.
#ifndef SHOAL_KERNELS_TCQ_ROW_H_
#define SHOAL_KERNELS_TCQ_ROW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/input_rotation.h"

namespace shoal {

// Good for every matrix whose columns it has: gate and up of all experts of a layer, or down of one unit.
struct TcqPreparedRow {
  double scale = 0;    // of the quantized activations; 0 or NaN as QuantizeActivations says
  int64_t offset = 0;  // what sums begin with: -kTcqCenter * the sum of the activations
  const int32_t* words = nullptr;  // [bundles * TcqBundleWords(planes)], as TcqKernels says
};

// int32 elements of the words of a row of `columns` activations of kMostPlanes planes, and bytes of scratch to make
// them.
int64_t TcqRowWords(int64_t columns);
int64_t TcqRowScratchBytes(int64_t columns);

// Prepares x. The result points into `words`, which has TcqRowWords(x.size()) elements; `scratch` has
// TcqRowScratchBytes(x.size()), aligned to 8. `rotation` is that of x.size() columns, `planes` those of the kernels
// that the row is for.
TcqPreparedRow PrepareTcqRow(const InputRotation& rotation, int planes, std::span<const float> x,
                             std::span<int32_t> words, std::span<std::byte> scratch);

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_ROW_H_

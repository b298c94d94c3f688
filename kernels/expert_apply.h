// One expert unit applied to one activation row: the only expert arithmetic there is.
//
//   out[j] += fixed( weight * sum_i down[j, i] * silu(gate_i . x) * (up_i . x) ),   i over the
//   unit's columns
//
// Order of sums. rvq3, tcq3: all dot products are integer sums (exact, any order) times one double
// factor. f32: 16 lanes of double, lane l takes elements l, l + 16, ... in order, lanes are folded
// 8, 4, 2, 1. Each term is rounded once to fixed point.
#ifndef SHOAL_KERNELS_EXPERT_APPLY_H_
#define SHOAL_KERNELS_EXPERT_APPLY_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/coded_unit.h"
#include "kernels/input_rotation.h"
#include "kernels/rvq.h"
#include "kernels/rvq_kernels.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_row.h"

namespace shoal {

// As CodedUnit (kernels/coded_unit.h).
struct F32Unit {
  int64_t hidden_size = 0;
  int64_t unit_width = 0;
  const float* gate = nullptr;  // [unit_width, hidden_size]
  const float* up = nullptr;    // [unit_width, hidden_size]
  const float* down = nullptr;  // [hidden_size, unit_width]
};

// An activation row made ready for the gate and up matrices of every expert of one layer: the
// lookup tables of both books (RvqKernels), good for the kernels that built them.
struct RvqPreparedRow {
  double scale = 0;  // of the quantized activations; 0 or NaN as QuantizeActivations says
  const int32_t* gate_table = nullptr;  // [ceil(hidden_size / 8) * 256]
  const int32_t* up_table = nullptr;
};

// int32 elements of the storage of one prepared row: both tables and the quantized activations.
int64_t RvqPreparedRowElements(int64_t hidden_size);
// Builds both tables in `storage` (RvqPreparedRowElements(hidden_size) elements, aligned to 64 bytes
// for speed), which the result points into.
RvqPreparedRow PrepareRvqRow(const RvqKernels& kernels, const LayerCodebooks& books,
                             std::span<const float> x, std::span<int32_t> storage);

// Bytes of scratch one thread needs for any of the functions below.
int64_t ExpertScratchBytes(int64_t hidden_size, int64_t unit_width);

// Adds the unit's weighted output to out [hidden_size] in fixed point. Returns false where a term
// is not finite or out of range (out is then unspecified). `scratch` has ExpertScratchBytes(...)
// bytes, aligned to 64, and belongs to one thread at a time. The result is the same for all
// kernels. `rotation` is that of a unit.
bool ApplyRvqUnit(const RvqKernels& kernels, const CodedUnit& unit, const LayerCodebooks& books,
                  const RvqPreparedRow& row, double weight, std::span<std::byte> scratch,
                  std::span<int64_t> out);
bool ApplyTcqUnit(const TcqKernels& kernels, const CodedUnit& unit, const InputRotation& rotation,
                  const TcqPreparedRow& row, double weight, std::span<std::byte> scratch,
                  std::span<int64_t> out);
bool ApplyF32Unit(const F32Unit& unit, std::span<const float> x, double weight,
                  std::span<std::byte> scratch, std::span<int64_t> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_EXPERT_APPLY_H_

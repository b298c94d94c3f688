// What lies between the integer sums of a unit: the same for one row and for many, and for both codecs.
#ifndef SHOAL_KERNELS_UNIT_STEPS_H_
#define SHOAL_KERNELS_UNIT_STEPS_H_

#include <cstdint>
#include <span>

#include "kernels/coded_unit.h"

namespace shoal {

// silu(gate) * up, rounded to float once.
float ActivateGated(double gate, double up);

// activated[i] = ActivateGated(gate_i, up_i) for the unit's columns, from the sums of a row [2 * unit_width], gate
// first, whose activations have the scale `scale`.
void ActivateUnit(const CodedUnit& unit, double scale, const int64_t* sums, float* activated);

// terms[j] = sums[j] * (factor * scales[j]), all of the same length; scales are float16.
void MakeTerms(std::span<const int64_t> sums, double factor, const uint16_t* scales,
               std::span<double> terms);

}  // namespace shoal

#endif  // SHOAL_KERNELS_UNIT_STEPS_H_

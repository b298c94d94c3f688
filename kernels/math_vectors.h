// The elementary functions of kernels/math.h for many elements at once, in vectors of whatever the CPU has: the same
// operations in the same order, so the same bits.
#ifndef SHOAL_KERNELS_MATH_VECTORS_H_
#define SHOAL_KERNELS_MATH_VECTORS_H_

#include <span>

namespace shoal {

// x[i] = Exp(x[i]), and so on. Thread-safe.
void ExpAll(std::span<double> x);
void SigmoidAll(std::span<double> x);
void SiluAll(std::span<double> x);
void SoftplusAll(std::span<double> x);

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATH_VECTORS_H_

// Products of MatMul (matvec.h, where the order of every sum is defined), each kind on its own.
#ifndef SHOAL_KERNELS_MATVEC_KERNELS_H_
#define SHOAL_KERNELS_MATVEC_KERNELS_H_

#include <cstdint>

#include "kernels/matrix.h"
#include "kernels/matvec.h"

namespace shoal {

// In plain C++, one element after the other: the definition that the others are tested against. All types.
void ScalarMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                  float* out, int64_t out_stride);

// With the vectors of the best instruction set that the CPU has. The first for kF32 and kBF16, the second for kQ8 and
// kQ4.
void FloatMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                 float* out, int64_t out_stride);
void QuantizedMatMul(const Matrix& w, const MatMulInput& input, int64_t row_begin, int64_t row_end,
                     float* out, int64_t out_stride);

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATVEC_KERNELS_H_

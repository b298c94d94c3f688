// Elementary functions with the same bits on every CPU: only additions, multiplications,
// divisions, fused multiply-adds and bit operations in a fixed order (IEEE 754 rounds each
// correctly), never the C library's versions, which differ between instruction sets.
#ifndef SHOAL_KERNELS_MATH_H_
#define SHOAL_KERNELS_MATH_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace shoal {

// e^x in double. Relative error below 4e-16 * (1 + |x|/700) on the normal range; 0 below -745.2,
// infinity above 709.78; NaN in, NaN out.
double Exp(double x);
// ln(1 + y) for y in [0, 1], relative error below 5e-16.
double Log1pUnit(double y);

// 1 / (1 + e^-x), x * Sigmoid(x), and ln(1 + e^x) without cut-off.
double Sigmoid(double x);
double Silu(double x);
double Softplus(double x);

// float16 bits to float (exact) and back (round to nearest even; overflow gives infinity).
float HalfToFloat(uint16_t bits);
uint16_t FloatToHalf(float value);
// bfloat16 bits to float, exact.
inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATH_H_

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

// float16 bits to float, exact. Without branches, so that a loop of it is done in vectors.
inline float HalfToFloat(uint16_t bits) {
  // As those of a float, exponent and mantissa mean 2^112 too little; the product is exact.
  const float finite = std::bit_cast<float>(uint32_t{bits & 0x7FFFU} << 13) * 0x1p112F;
  // Infinity and NaN have the largest exponent there too.
  const uint32_t exponent = (bits & 0x7C00U) == 0x7C00U ? 0x7F800000U : 0;
  const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(finite) | exponent | sign);
}
// And back, rounded to nearest even; overflow gives infinity.
uint16_t FloatToHalf(float value);
// bfloat16 bits to float, exact.
inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATH_H_

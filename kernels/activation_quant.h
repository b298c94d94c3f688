// Activations as integers: the one quantizer in front of every integer dot product of the experts
// ("exact" arithmetic, three 7-bit planes = 21 bits).
#ifndef SHOAL_KERNELS_ACTIVATION_QUANT_H_
#define SHOAL_KERNELS_ACTIVATION_QUANT_H_

#include <cstdint>
#include <span>

namespace shoal {

// Largest magnitude of a quantized activation: three 7-bit planes, 63 * (2^14 + 2^7 + 1).
inline constexpr int32_t kActivationMax = 63 * (16384 + 128 + 1);

// out[i] = round_to_even(x[i] / scale) with scale = max|x| / kActivationMax; |out[i]| <=
// kActivationMax. Returns the scale: 0 for a vector of zeros (out is zeros), NaN where an element
// is not finite (out is zeros). All in double, so every CPU agrees.
double QuantizeActivations(std::span<const float> x, std::span<int32_t> out);
double QuantizeActivations(std::span<const double> x, std::span<int32_t> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_ACTIVATION_QUANT_H_

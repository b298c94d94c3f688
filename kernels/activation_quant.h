// Activations as integers: the one quantizer in front of every integer dot product of the experts.
#ifndef SHOAL_KERNELS_ACTIVATION_QUANT_H_
#define SHOAL_KERNELS_ACTIVATION_QUANT_H_

#include <cstdint>
#include <span>

namespace shoal {

// out[i] = round_to_even(x[i] / scale) with scale = max|x| / ActivationMax(planes); |out[i]| <=
// ActivationMax(planes). Returns the scale: 0 for a vector of zeros (out is zeros), NaN where an element
// is not finite (out is zeros). All in double, so every CPU agrees.
double QuantizeActivations(std::span<const float> x, int planes, std::span<int32_t> out);
double QuantizeActivations(std::span<const double> x, int planes, std::span<int32_t> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_ACTIVATION_QUANT_H_

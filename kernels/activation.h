// The gated activation of the feed-forward networks.
#ifndef SHOAL_KERNELS_ACTIVATION_H_
#define SHOAL_KERNELS_ACTIVATION_H_

#include <span>

namespace shoal {

// gate[i] = silu(gate[i]) * up[i] (SwiGLU, Shazeer 2020), in double, rounded to float once.
void SwiGlu(std::span<float> gate, std::span<const float> up);

// x[i] = 1 / (1 + e^-x[i]), in double, rounded to float once.
void SigmoidInPlace(std::span<float> x);

}  // namespace shoal

#endif  // SHOAL_KERNELS_ACTIVATION_H_

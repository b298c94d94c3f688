// Root-mean-square normalisation.
#ifndef SHOAL_KERNELS_RMS_NORM_H_
#define SHOAL_KERNELS_RMS_NORM_H_

#include <span>

namespace shoal {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] (Zhang & Sennrich 2019; no "+1" on the weight).
// The sum of squares is taken in kernels/lanes.h's order; each result is rounded to float once. All
// spans have the same size; `out` may be `x`.
void RmsNorm(std::span<const float> x, std::span<const float> weight, double eps,
             std::span<float> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_RMS_NORM_H_

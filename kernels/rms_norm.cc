#include "kernels/rms_norm.h"

#include <cmath>
#include <cstdint>

#include "kernels/lanes.h"

namespace shoal {

void RmsNorm(std::span<const float> x, std::span<const float> weight, double eps,
             std::span<float> out) {
  const auto n = static_cast<int64_t>(x.size());
  const double mean_square = LaneDot(x.data(), x.data(), n) / static_cast<double>(n);
  const double factor = 1.0 / std::sqrt(mean_square + eps);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(double{x[i]} * factor * double{weight[i]});
  }
}

}  // namespace shoal

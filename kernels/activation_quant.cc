#include "kernels/activation_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shoal {

double QuantizeActivations(std::span<const float> x, std::span<int32_t> out) {
  float largest = 0;
  bool finite = true;
  for (const float value : x) {
    const float magnitude = std::fabs(value);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    largest = std::max(largest, magnitude);
  }
  if (!finite || largest == 0) {
    std::fill(out.begin(), out.end(), 0);
    return finite ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  }
  const double inverse = double{kActivationMax} / double{largest};
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = static_cast<int32_t>(std::nearbyint(double{x[i]} * inverse));
  }
  return double{largest} / double{kActivationMax};
}

}  // namespace shoal

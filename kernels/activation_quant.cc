#include "kernels/activation_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shoal {

namespace {

template <typename T>
double Quantize(std::span<const T> x, std::span<int32_t> out) {
  T largest = 0;
  bool finite = true;
  for (const T value : x) {
    const T magnitude = std::fabs(value);
    finite = finite && magnitude <= std::numeric_limits<T>::max();
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

}  // namespace

double QuantizeActivations(std::span<const float> x, std::span<int32_t> out) {
  return Quantize(x, out);
}

double QuantizeActivations(std::span<const double> x, std::span<int32_t> out) {
  return Quantize(x, out);
}

}  // namespace shoal

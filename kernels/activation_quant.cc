#include "kernels/activation_quant.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/expert_arithmetic.h"

namespace shoal {

namespace {

// The largest magnitude, and NaN where an element is not finite. In lanes, which a compiler turns into vectors;
// the order does not matter to a maximum.
template <typename T>
T LargestMagnitude(std::span<const T> x) {
  constexpr size_t kLanes = 16;
  T largest[kLanes] = {};
  T excess[kLanes] = {};  // stays 0 while all are finite
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const T magnitude = std::fabs(x[i + lane]);
      largest[lane] = magnitude > largest[lane] ? magnitude : largest[lane];
      excess[lane] += magnitude - magnitude;
    }
  }
  for (; i < x.size(); ++i) {
    largest[0] = std::max(largest[0], std::fabs(x[i]));
    excess[0] += x[i] - x[i];
  }
  T result = 0;
  T total_excess = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    result = std::max(result, largest[lane]);
    total_excess += excess[lane];
  }
  return result + total_excess;
}

template <typename T>
double Quantize(std::span<const T> x, int planes, std::span<int32_t> out) {
  const T largest = LargestMagnitude(x);
  const bool finite = largest <= std::numeric_limits<T>::max();
  if (!finite || largest == 0) {
    std::fill(out.begin(), out.end(), 0);
    return finite ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  }
  const double max = ActivationMax(planes);
  const double inverse = max / double{largest};
  for (size_t i = 0; i < x.size(); ++i) {
    out[i] = static_cast<int32_t>(std::nearbyint(double{x[i]} * inverse));
  }
  return double{largest} / max;
}

}  // namespace

double QuantizeActivations(std::span<const float> x, int planes, std::span<int32_t> out) {
  return Quantize(x, planes, out);
}

double QuantizeActivations(std::span<const double> x, int planes, std::span<int32_t> out) {
  return Quantize(x, planes, out);
}

}  // namespace shoal

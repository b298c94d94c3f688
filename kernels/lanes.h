// Sums in a fixed order: 16 lanes of double, whatever the vector width of the CPU. Lane l takes
// elements l, l + 16, ... in order; then lanes are folded 8, 4, 2, 1. Products of two floats are
// exact in double, so fused and separate multiply-adds agree.
#ifndef SHOAL_KERNELS_LANES_H_
#define SHOAL_KERNELS_LANES_H_

#include <cmath>
#include <cstdint>

#include "kernels/math.h"

namespace shoal {

inline constexpr int64_t kLanes = 16;

// lane[l] += lane[l + 8] for l < 8, then 4, 2, 1.
inline double FoldLanes(double* lane) {
  for (int64_t width = kLanes / 2; width >= 1; width /= 2) {
    for (int64_t l = 0; l < width; ++l) {
      lane[l] += lane[l + width];
    }
  }
  return lane[0];
}

// The same fold for lanes of float.
inline float FoldLanes(float* lane) {
  for (int64_t width = kLanes / 2; width >= 1; width /= 2) {
    for (int64_t l = 0; l < width; ++l) {
      lane[l] += lane[l + width];
    }
  }
  return lane[0];
}

inline float WidenElement(float value) { return value; }
inline float WidenElement(uint16_t bf16_bits) { return Bf16ToFloat(bf16_bits); }

// Dot product of n elements; `a` holds float or bfloat16 bits (uint16_t).
template <typename T>
double LaneDot(const T* a, const float* b, int64_t n) {
  double lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lane[l] = std::fma(double{WidenElement(a[i + l])}, double{b[i + l]}, lane[l]);
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    lane[l] = std::fma(double{WidenElement(a[i + l])}, double{b[i + l]}, lane[l]);
  }
  return FoldLanes(lane);
}

// Dot product in lanes of float with fused multiply-adds: for attention, where inputs are rounded
// to float already and speed counts.
inline float FloatLaneDot(const float* a, const float* b, int64_t n) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      lane[l] = std::fma(a[i + l], b[i + l], lane[l]);
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    lane[l] = std::fma(a[i + l], b[i + l], lane[l]);
  }
  return FoldLanes(lane);
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_LANES_H_

// How finely the activations in front of expert matrices are cut. Either arithmetic has its own bits, which are the same
// on every CPU, for one row and for many, in one process and in a pool.
#ifndef SHOAL_KERNELS_EXPERT_ARITHMETIC_H_
#define SHOAL_KERNELS_EXPERT_ARITHMETIC_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace shoal {

enum class ExpertArithmetic {
  kExact,  // three planes of 7 bits: as near to the weights' own output as float32
  kFast,   // two planes, and table values of 16 bits for rvq3: within 2e-4 of it (rvq3 1e-3)
};

// "exact", "fast".
std::string_view ExpertArithmeticName(ExpertArithmetic arithmetic);
std::optional<ExpertArithmetic> ParseExpertArithmetic(std::string_view name);

// Planes of 7 bits, signed, that an activation is cut into: q = plane 0 + 2^7 plane 1 (+ 2^14 plane 2).
inline constexpr int kExactPlanes = 3;
inline constexpr int kFastPlanes = 2;
inline constexpr int kMostPlanes = kExactPlanes;
constexpr int ActivationPlanes(ExpertArithmetic arithmetic) {
  return arithmetic == ExpertArithmetic::kExact ? kExactPlanes : kFastPlanes;
}

// Largest magnitude of an activation of so many planes: 63 * (2^14 + 2^7 + 1) and 63 * (2^7 + 1).
constexpr int32_t ActivationMax(int planes) {
  return planes == kExactPlanes ? 63 * (16384 + 128 + 1) : 63 * (128 + 1);
}

}  // namespace shoal

#endif  // SHOAL_KERNELS_EXPERT_ARITHMETIC_H_

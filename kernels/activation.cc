#include "kernels/activation.h"

#include <algorithm>
#include <cstddef>

#include "kernels/math_vectors.h"

namespace shoal {
namespace {

// Elements that are widened to double at a time.
constexpr size_t kAtOnce = 64;

}  // namespace

void SwiGlu(std::span<float> gate, std::span<const float> up) {
  for (size_t begin = 0; begin < gate.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, gate.size() - begin);
    double silu[kAtOnce];
    std::copy_n(gate.begin() + static_cast<ptrdiff_t>(begin), count, silu);
    SiluAll({silu, count});
    for (size_t i = 0; i < count; ++i) {
      gate[begin + i] = static_cast<float>(silu[i] * double{up[begin + i]});
    }
  }
}

void SigmoidInPlace(std::span<float> x) {
  for (size_t begin = 0; begin < x.size(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, x.size() - begin);
    double sigmoid[kAtOnce];
    std::copy_n(x.begin() + static_cast<ptrdiff_t>(begin), count, sigmoid);
    SigmoidAll({sigmoid, count});
    for (size_t i = 0; i < count; ++i) {
      x[begin + i] = static_cast<float>(sigmoid[i]);
    }
  }
}

}  // namespace shoal

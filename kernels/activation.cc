#include "kernels/activation.h"

#include <cstddef>

#include "kernels/math.h"

namespace shoal {

void SwiGlu(std::span<float> gate, std::span<const float> up) {
  for (size_t i = 0; i < gate.size(); ++i) {
    gate[i] = static_cast<float>(Silu(gate[i]) * double{up[i]});
  }
}

void SigmoidInPlace(std::span<float> x) {
  for (float& value : x) {
    value = static_cast<float>(Sigmoid(value));
  }
}

}  // namespace shoal

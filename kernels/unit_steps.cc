#include "kernels/unit_steps.h"

#include <algorithm>
#include <cstddef>

#include "kernels/fixed_point.h"
#include "kernels/math.h"
#include "kernels/math_vectors.h"

namespace shoal {

float ActivateGated(double gate, double up) { return static_cast<float>(Silu(gate) * up); }

void ActivateUnit(const CodedUnit& unit, double scale, const int64_t* sums, float* activated) {
  constexpr int64_t kAtOnce = 64;
  const int64_t width = unit.unit_width;
  for (int64_t begin = 0; begin < width; begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, width - begin);
    double gate[kAtOnce];
    double up[kAtOnce];
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = begin + i;
      gate[i] = static_cast<double>(sums[at]) * (scale * HalfToFloat(unit.gate_scales[at]));
      up[i] = static_cast<double>(sums[width + at]) * (scale * HalfToFloat(unit.up_scales[at]));
    }
    SiluAll({gate, static_cast<size_t>(count)});
    for (int64_t i = 0; i < count; ++i) {
      activated[begin + i] = static_cast<float>(gate[i] * up[i]);
    }
  }
}

void MakeTerms(std::span<const int64_t> sums, double factor, const uint16_t* scales,
               std::span<double> terms) {
  IntegersToDoubles(sums, terms);
  for (size_t j = 0; j < terms.size(); ++j) {
    terms[j] *= factor * HalfToFloat(scales[j]);
  }
}

}  // namespace shoal

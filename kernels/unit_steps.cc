#include "kernels/unit_steps.h"

#include <cstddef>

#include "kernels/fixed_point.h"
#include "kernels/math.h"

namespace shoal {

float ActivateGated(double gate, double up) { return static_cast<float>(Silu(gate) * up); }

void ActivateUnit(const CodedUnit& unit, double scale, const int64_t* sums, float* activated) {
  const int64_t width = unit.unit_width;
  for (int64_t i = 0; i < width; ++i) {
    const double gate = static_cast<double>(sums[i]) * (scale * HalfToFloat(unit.gate_scales[i]));
    const double up =
        static_cast<double>(sums[width + i]) * (scale * HalfToFloat(unit.up_scales[i]));
    activated[i] = ActivateGated(gate, up);
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

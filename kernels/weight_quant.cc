// Quantization of trunk weights; used by the converter only.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "kernels/math.h"
#include "kernels/matvec.h"

namespace shoal {
namespace {

struct GroupFit {
  uint16_t scale_bits = 0;
  double squared_error = 0;
};

int32_t QuantizeValue(float value, float inverse_scale, int32_t low, int32_t high) {
  // Clamped before the cast, which is undefined for what int32 cannot hold. NaN becomes `low`.
  const float code = std::nearbyint(value * inverse_scale);
  return static_cast<int32_t>(
      std::min(std::max(static_cast<float>(low), code), static_cast<float>(high)));
}

// Error of coding the group with this scale, rounded to float16 first.
GroupFit TryScale(std::span<const float> group, float scale, int32_t low, int32_t high) {
  GroupFit fit;
  fit.scale_bits = FloatToHalf(scale);
  const float stored = HalfToFloat(fit.scale_bits);
  const float inverse = stored != 0 ? 1.0F / stored : 0.0F;
  for (const float value : group) {
    const double error = double{value} - double{stored} * QuantizeValue(value, inverse, low, high);
    fit.squared_error += error * error;
  }
  return fit;
}

// The scale of least squared error among a few: full range, and for 4 bits some that clip the
// largest values.
uint16_t ChooseScale(TrunkType type, std::span<const float> group) {
  float extreme = 0;  // the value of largest magnitude, with its sign
  for (const float value : group) {
    if (std::fabs(value) > std::fabs(extreme)) {
      extreme = value;
    }
  }
  if (type == TrunkType::kQ8) {
    return FloatToHalf(std::fabs(extreme) / 127.0F);
  }
  // -extreme / 8 puts the extreme value on the code -8, which has no positive partner.
  constexpr float kSteps[] = {8.0F, 8.5F, 9.0F, 9.5F, 7.5F, 7.0F};
  GroupFit best = TryScale(group, -extreme / kSteps[0], -8, 7);
  for (const float step : kSteps) {
    for (const float sign : {-1.0F, 1.0F}) {
      const GroupFit fit = TryScale(group, sign * extreme / step, -8, 7);
      if (fit.squared_error < best.squared_error) {
        best = fit;
      }
    }
  }
  return best.scale_bits;
}

}  // namespace

void QuantizeWeightRow(TrunkType type, std::span<const float> row, std::span<std::byte> values,
                       std::span<uint16_t> scales) {
  const auto cols = static_cast<int64_t>(row.size());
  for (int64_t g = 0; g * kTrunkGroup < cols; ++g) {
    const int64_t n = std::min(kTrunkGroup, cols - g * kTrunkGroup);
    const auto group = row.subspan(g * kTrunkGroup, n);
    scales[g] = ChooseScale(type, group);
    const float stored = HalfToFloat(scales[g]);
    const float inverse = stored != 0 ? 1.0F / stored : 0.0F;
    if (type == TrunkType::kQ8) {
      for (int64_t i = 0; i < n; ++i) {
        const auto code = static_cast<int8_t>(QuantizeValue(group[i], inverse, -127, 127));
        values[g * kTrunkGroup + i] = static_cast<std::byte>(code);
      }
      continue;
    }
    const int64_t half = (n + 1) / 2;
    for (int64_t i = 0; i < half; ++i) {
      const int32_t first = QuantizeValue(group[i], inverse, -8, 7) + 8;
      const int32_t second = i + half < n ? QuantizeValue(group[i + half], inverse, -8, 7) + 8 : 8;
      values[g * (kTrunkGroup / 2) + i] = static_cast<std::byte>(first | (second << 4));
    }
  }
}

}  // namespace shoal

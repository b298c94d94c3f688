#include "coordinator/convert/unit_codec.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace shoal {

double SquaredError::Relative() const { return weight > 0 ? std::sqrt(error / weight) : 0; }

SquaredError ErrorOf(std::span<const float> weights, std::span<const float> coded) {
  SquaredError sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    const double error = weight - double{coded[i]};
    sum.error += error * error;
    sum.weight += weight * weight;
  }
  return sum;
}

ExpertWeights ExpertWeights::Sized(const UnitLayout& layout) {
  const size_t elements = static_cast<size_t>(layout.hidden_size) * layout.intermediate_size;
  ExpertWeights weights;
  for (std::vector<float>& matrix : weights.matrices) {
    matrix.resize(elements);
  }
  return weights;
}

MatrixPiece PieceOf(const UnitLayout& layout, int64_t unit_index, int matrix) {
  const int64_t width = layout.unit_width;
  const int64_t first = unit_index * width;
  const int64_t present = std::clamp<int64_t>(layout.intermediate_size - first, 0, width);
  if (matrix == kDown) {
    return {layout.hidden_size, present, first, layout.intermediate_size};
  }
  return {present, layout.hidden_size, first * layout.hidden_size, layout.hidden_size};
}

absl::StatusOr<SquaredError> UnitCodec::EncodeUnit(ExpertKey key, int64_t unit_index,
                                                   const ExpertWeights& weights,
                                                   std::span<std::byte> unit) const {
  const SquaredError sum = Encode(unit_index, weights, unit);
  if (!std::isfinite(sum.error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", key.layer, " expert ", key.expert, ": weights are too large for ",
        ExpertCodecName(layout_.codec), ", whose row scales are float16; use --experts f32"));
  }
  SealUnit(layout_, key, unit_index, unit);
  return sum;
}

std::unique_ptr<UnitCodec> MakeUnitCodec(const UnitLayout& layout, const TrainedCodebooks& books,
                                         uint64_t seed) {
  switch (layout.codec) {
    case ExpertCodec::kRvq3:
      return MakeRvqUnitCodec(layout, books);
    case ExpertCodec::kTcq3:
      return MakeTcqUnitCodec(layout, seed);
    case ExpertCodec::kF32:
      break;
  }
  return MakeF32UnitCodec(layout);
}

}  // namespace shoal

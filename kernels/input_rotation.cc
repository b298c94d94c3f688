#include "kernels/input_rotation.h"

#include <cmath>

#include "kernels/split_mix.h"

namespace shoal {
namespace {

constexpr int64_t kMaxBlock = 256;

// The butterflies of neighbours, and then those of every other one, in one go: alone neither fills a vector.
void FirstTwoStages(double* values, int64_t columns) {
  for (int64_t i = 0; i < columns; i += 4) {
    const double sum0 = values[i] + values[i + 1];
    const double difference0 = values[i] - values[i + 1];
    const double sum1 = values[i + 2] + values[i + 3];
    const double difference1 = values[i + 2] - values[i + 3];
    values[i] = sum0 + sum1;
    values[i + 1] = difference0 + difference1;
    values[i + 2] = sum0 - sum1;
    values[i + 3] = difference0 - difference1;
  }
}

}  // namespace

InputRotation::InputRotation(int64_t columns, uint64_t seed) {
  while (block_ < kMaxBlock && columns % (2 * block_) == 0) {
    block_ *= 2;
  }
  normalization_ = 1 / std::sqrt(static_cast<double>(block_));
  SplitMix64Stream random(seed);
  for (int64_t i = 0; i < columns; ++i) {
    signs_.push_back((random.Next() & 1) != 0 ? -1.0F : 1.0F);
  }
}

void InputRotation::Transform(std::span<double> y) const {
  const auto columns = static_cast<int64_t>(y.size());
  double* values = y.data();
  int64_t half = 1;
  if (block_ >= 4) {
    FirstTwoStages(values, columns);
    half = 4;
  }
  for (; half < block_; half *= 2) {
    for (int64_t begin = 0; begin < columns; begin += 2 * half) {
      for (int64_t i = begin; i < begin + half; ++i) {
        const double a = values[i];
        const double b = values[i + half];
        values[i] = a + b;
        values[i + half] = a - b;
      }
    }
  }
}

void InputRotation::Rotate(std::span<const float> x, std::span<double> out) const {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = double{x[i]} * double{signs_[i]};
  }
  Transform(out);
}

void InputRotation::RotateBack(std::span<double> y) const {
  Transform(y);
  for (size_t i = 0; i < y.size(); ++i) {
    y[i] *= normalization_ * double{signs_[i]};
  }
}

ExpertRotations ExpertRotations::Of(int64_t hidden_size, int64_t unit_width, uint64_t seed) {
  return {InputRotation(hidden_size, SplitMix64(seed, 0)),
          InputRotation(unit_width, SplitMix64(seed, 1))};
}

}  // namespace shoal

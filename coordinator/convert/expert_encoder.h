// One expert's matrices <-> the units of its record (common/container/unit_layout.h).
#ifndef SHOAL_COORDINATOR_CONVERT_EXPERT_ENCODER_H_
#define SHOAL_COORDINATOR_CONVERT_EXPERT_ENCODER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "coordinator/convert/codebook_training.h"
#include "coordinator/convert/source_model.h"
#include "kernels/rvq.h"
#include "kernels/rvq_encode.h"

namespace shoal {

// Float weights of one expert: gate and up [intermediate_size, hidden_size], down [hidden_size,
// intermediate_size].
struct ExpertWeights {
  std::array<std::vector<float>, kExpertMatrices> matrices;

  // All zero, in the sizes of `layout`.
  static ExpertWeights Sized(const UnitLayout& layout);
};

// Squared norms, of what a part of the model lost and of what it was; sums in a fixed order.
struct SquaredError {
  double error = 0;
  double weight = 0;

  SquaredError& operator+=(const SquaredError& other) {
    error += other.error;
    weight += other.weight;
    return *this;
  }
  // ||W - Wq|| / ||W||; 0 where W is zero.
  double Relative() const;
};

// Thread-safe: Encode is const.
class ExpertEncoder {
 public:
  // `books` are the layer's; absent for the f32 codec.
  ExpertEncoder(const UnitLayout& layout, const std::optional<TrainedCodebooks>& books);

  // Writes one unit, sealed, into `unit` (layout.unit_bytes, zeroed). INVALID_ARGUMENT where a
  // weight is too large for the codec's float16 scales.
  absl::StatusOr<SquaredError> EncodeUnit(ExpertKey key, int64_t unit_index,
                                          const ExpertWeights& weights,
                                          std::span<std::byte> unit) const;

 private:
  SquaredError EncodeRvq(int64_t unit_index, const ExpertWeights& weights,
                         std::span<std::byte> unit) const;
  void EncodeF32(int64_t unit_index, const ExpertWeights& weights, std::span<std::byte> unit) const;

  const UnitLayout layout_;
  LayerCodebooks books_;
  std::vector<RvqEncoder> encoders_;  // gate, up, down; empty for f32
};

// The weights that a checked unit stands for, written to their places in `weights` (as made by
// Sized). Padding is skipped. `books` is not looked at for f32.
void DecodeUnit(const UnitLayout& layout, const LayerCodebooks& books, int64_t unit_index,
                std::span<const std::byte> unit, ExpertWeights& weights);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_EXPERT_ENCODER_H_

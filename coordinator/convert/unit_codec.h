// One expert's matrices <-> the units of its record (common/container/unit_layout.h), for every codec.
#ifndef SHOAL_COORDINATOR_CONVERT_UNIT_CODEC_H_
#define SHOAL_COORDINATOR_CONVERT_UNIT_CODEC_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "coordinator/convert/codebook_training.h"
#include "coordinator/convert/source_model.h"
#include "kernels/rvq.h"

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

// Of the weights and of what they were coded as, of the same length.
SquaredError ErrorOf(std::span<const float> weights, std::span<const float> coded);

// The part of a matrix that is in one unit: rows of the model's weights, without padding.
struct MatrixPiece {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t offset = 0;  // of the first weight in the matrix
  int64_t stride = 0;  // from row to row
};
MatrixPiece PieceOf(const UnitLayout& layout, int64_t unit_index, int matrix);

// Thread-safe: everything is const.
class UnitCodec {
 public:
  virtual ~UnitCodec() = default;

  // Writes one unit, sealed, into `unit` (layout.unit_bytes, zeroed). INVALID_ARGUMENT where a
  // weight is too large for the codec's float16 scales.
  absl::StatusOr<SquaredError> EncodeUnit(ExpertKey key, int64_t unit_index,
                                          const ExpertWeights& weights,
                                          std::span<std::byte> unit) const;
  // The weights that a checked unit stands for, written to their places in `weights` (as made by
  // Sized). Padding is skipped.
  virtual void DecodeUnit(int64_t unit_index, std::span<const std::byte> unit,
                          ExpertWeights& weights) const = 0;

 protected:
  explicit UnitCodec(const UnitLayout& layout) : layout_(layout) {}
  const UnitLayout& layout() const { return layout_; }

 private:
  // Fills in everything but the header. Where a scale is not finite, neither is the error.
  virtual SquaredError Encode(int64_t unit_index, const ExpertWeights& weights,
                              std::span<std::byte> unit) const = 0;

  const UnitLayout layout_;
};

// The codec of `layout`. `books` are the layer's, and not looked at by codecs without; to decode, their grids
// do not matter. `seed` is the container's.
std::unique_ptr<UnitCodec> MakeUnitCodec(const UnitLayout& layout, const TrainedCodebooks& books,
                                         uint64_t seed);

// One for each codec.
std::unique_ptr<UnitCodec> MakeRvqUnitCodec(const UnitLayout& layout,
                                            const TrainedCodebooks& books);
std::unique_ptr<UnitCodec> MakeTcqUnitCodec(const UnitLayout& layout, uint64_t seed);
std::unique_ptr<UnitCodec> MakeF32UnitCodec(const UnitLayout& layout);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_UNIT_CODEC_H_

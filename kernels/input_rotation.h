// The rotation of a matrix's input side before tcq3: random signs and then a Walsh-Hadamard transform of every
// block of columns. It makes weights of any distribution nearly Gaussian, which the trellis's table is made
// for: W x = (W D H^T / n) (H D x), D the signs, H H^T = n (Chee et al., "QuIP", 2023).
#ifndef SHOAL_KERNELS_INPUT_ROTATION_H_
#define SHOAL_KERNELS_INPUT_ROTATION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

// Thread-safe: nothing changes after construction. Every CPU gives the same bits.
class InputRotation {
 public:
  InputRotation() = default;
  // Blocks are of the largest power of two up to 256 that divides `columns`. The sign of column i is bit 0 of
  // the i-th output of SplitMix64(seed).
  InputRotation(int64_t columns, uint64_t seed);

  int64_t block() const { return block_; }
  // H D x, without the factor 1 / sqrt(block); x and out [columns]. In double, in which
  // floats of similar size lose nothing.
  void Rotate(std::span<const float> x, std::span<double> out) const;
  // What makes Rotate keep lengths: 1 / sqrt(block).
  double normalization() const { return normalization_; }
  // D H y / sqrt(block): the inverse of Rotate times normalization(), in place.
  void RotateBack(std::span<double> y) const;

 private:
  void Transform(std::span<double> y) const;

  std::vector<float> signs_;
  int64_t block_ = 1;
  double normalization_ = 1;
};

// The rotations of a model's experts: of the input of gate and up, and of a unit's piece of the input of down,
// which is the same for all units.
struct ExpertRotations {
  InputRotation input;
  InputRotation unit;

  // `seed` is the container's.
  static ExpertRotations Of(int64_t hidden_size, int64_t unit_width, uint64_t seed);
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_INPUT_ROTATION_H_

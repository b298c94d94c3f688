// Error feedback between the column groups of a matrix that is encoded: what a group loses is added to the
// groups after it, as far as their inputs go together. LDLQ (Chee et al., "QuIP: 2-bit quantization of large
// language models with guarantees", 2023; the sums of Frantar et al., "GPTQ", 2023) with groups of eight columns:
//
//   H = sum of x x^T over inputs x, damped;   H = (I + U) D (I + U)^T,
//
// D of blocks of 8 x 8, U with nothing but blocks above those. Groups are encoded in order, and group g is encoded as
//
//   what_g = Q(w_g + sum over j < g of (w_j - what_j) U_jg),
//
// so that the loss tr((W - What) H (W - What)^T) is the sum over groups of what Q alone loses, weighted by D.
#ifndef SHOAL_KERNELS_ERROR_FEEDBACK_H_
#define SHOAL_KERNELS_ERROR_FEEDBACK_H_

#include <cstdint>
#include <span>
#include <vector>

namespace shoal {

inline constexpr int64_t kFeedbackGroup = 8;  // columns

// H of the inputs seen so far, in double.
class InputHessian {
 public:
  // Of inputs of `columns` elements, none yet. Takes columns^2 * 8 bytes.
  explicit InputHessian(int64_t columns);

  int64_t columns() const { return columns_; }

  // Adds rows begin...end - 1 of x x^T for every row of x [num_x, columns]: calls for other rows may run at the
  // same time. Every element is a sum in the order of the inputs, so that no number of threads changes a bit.
  void AddRows(std::span<const float> x, int64_t begin, int64_t end);
  // Adds all rows.
  void Add(std::span<const float> x) { AddRows(x, 0, columns_); }
  // Adds factor * other. Of the same number of columns.
  void Add(const InputHessian& other, double factor);

  // H[i][j] for j <= i.
  double at(int64_t i, int64_t j) const { return values_[static_cast<size_t>(i * columns_ + j)]; }

 private:
  int64_t columns_;
  std::vector<double> values_;  // [columns, columns]; below and on the diagonal
};

// U. Thread-safe: nothing changes after construction.
class ErrorFeedback {
 public:
  // Damped by a hundredth of the mean of H's diagonal (GPTQ's). Where H is zero or has nothing beside its diagonal,
  // U is zero. The same H gives the same bits on every CPU. Takes columns^3 / 6 multiply-adds and columns^2 * 8 bytes
  // beside the result's columns^2 * 4.
  explicit ErrorFeedback(const InputHessian& hessian);

  // Whole groups.
  int64_t columns() const { return columns_; }

  // Adds what group `group` lost, errors [rows, 8], to the columns after it in targets [rows, columns()].
  void Spread(int64_t group, std::span<const float> errors, std::span<float> targets) const;

 private:
  int64_t columns_;
  std::vector<float> feedback_;  // U [columns, columns]
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_ERROR_FEEDBACK_H_

#include "kernels/error_feedback.h"

#include <array>
#include <cstddef>

namespace shoal {
namespace {

constexpr double kDamping = 0.01;
// Inputs that go through H together: each pass reads and writes all of it.
constexpr int64_t kInputsTogether = 8;

using Block = std::array<std::array<double, kFeedbackGroup>, kFeedbackGroup>;

// H with whole groups of columns, damped, below and on the diagonal; what is left of it after later groups are
// eliminated.
class Remainder {
 public:
  explicit Remainder(const InputHessian& hessian)
      : columns_((hessian.columns() + kFeedbackGroup - 1) / kFeedbackGroup * kFeedbackGroup),
        values_(static_cast<size_t>(columns_ * columns_)) {
    double trace = 0;
    for (int64_t i = 0; i < hessian.columns(); ++i) {
      trace += hessian.at(i, i);
      for (int64_t j = 0; j <= i; ++j) {
        Row(i)[j] = hessian.at(i, j);
      }
    }
    const double damping = kDamping * trace / static_cast<double>(hessian.columns());
    for (int64_t i = 0; i < columns_; ++i) {
      Row(i)[i] += damping;
    }
  }

  int64_t columns() const { return columns_; }
  double* Row(int64_t i) { return values_.data() + i * columns_; }

  // The inverse of the diagonal block of a group, by Gauss-Jordan elimination, for which a positive definite matrix needs
  // no pivots.
  Block InverseOf(int64_t first) {
    Block block;
    for (int64_t i = 0; i < kFeedbackGroup; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        block[i][j] = block[j][i] = Row(first + i)[first + j];
      }
    }
    Block inverse = {};
    for (int64_t i = 0; i < kFeedbackGroup; ++i) {
      inverse[i][i] = 1;
    }
    for (int64_t p = 0; p < kFeedbackGroup; ++p) {
      const double pivot = 1 / block[p][p];
      for (int64_t j = 0; j < kFeedbackGroup; ++j) {
        block[p][j] *= pivot;
        inverse[p][j] *= pivot;
      }
      for (int64_t i = 0; i < kFeedbackGroup; ++i) {
        const double factor = block[i][p];
        for (int64_t j = 0; i != p && j < kFeedbackGroup; ++j) {
          block[i][j] -= factor * block[p][j];
          inverse[i][j] -= factor * inverse[p][j];
        }
      }
    }
    return inverse;
  }

 private:
  const int64_t columns_;
  std::vector<double> values_;
};

}  // namespace

InputHessian::InputHessian(int64_t columns)
    : columns_(columns), values_(static_cast<size_t>(columns * columns)) {}

void InputHessian::AddRows(std::span<const float> x, int64_t begin, int64_t end) {
  const auto num_x = static_cast<int64_t>(x.size()) / columns_;
  for (int64_t first = 0; first < num_x; first += kInputsTogether) {
    const int64_t last = first + kInputsTogether < num_x ? first + kInputsTogether : num_x;
    for (int64_t i = begin; i < end; ++i) {
      double* row = values_.data() + i * columns_;
      for (int64_t t = first; t < last; ++t) {
        const float* input = x.data() + t * columns_;
        const double factor = input[i];
        for (int64_t j = 0; j <= i; ++j) {
          row[j] += factor * double{input[j]};
        }
      }
    }
  }
}

void InputHessian::Add(const InputHessian& other, double factor) {
  for (size_t i = 0; i < values_.size(); ++i) {
    values_[i] += factor * other.values_[i];
  }
}

ErrorFeedback::ErrorFeedback(const InputHessian& hessian) {
  Remainder remainder(hessian);
  columns_ = remainder.columns();
  feedback_.resize(static_cast<size_t>(columns_ * columns_));
  for (int64_t first = columns_ - kFeedbackGroup; first > 0; first -= kFeedbackGroup) {
    if (!(remainder.Row(first)[first] > 0)) {
      return;  // nothing was ever put in
    }
    const Block inverse = remainder.InverseOf(first);
    for (int64_t i = 0; i < first; ++i) {
      std::array<double, kFeedbackGroup> factors = {};
      for (int64_t c = 0; c < kFeedbackGroup; ++c) {
        for (int64_t d = 0; d < kFeedbackGroup; ++d) {
          factors[c] += remainder.Row(first + d)[i] * inverse[d][c];
        }
        feedback_[static_cast<size_t>(i * columns_ + first + c)] = static_cast<float>(factors[c]);
      }
      double* row = remainder.Row(i);
      for (int64_t c = 0; c < kFeedbackGroup; ++c) {
        const double* eliminated = remainder.Row(first + c);
        for (int64_t j = 0; j <= i; ++j) {
          row[j] -= factors[c] * eliminated[j];
        }
      }
    }
  }
}

void ErrorFeedback::Spread(int64_t group, std::span<const float> errors,
                           std::span<float> targets) const {
  const int64_t first = group * kFeedbackGroup;
  const float* factors = feedback_.data() + first * columns_;
  const auto rows = static_cast<int64_t>(errors.size()) / kFeedbackGroup;
  for (int64_t r = 0; r < rows; ++r) {
    float* target = targets.data() + r * columns_;
    const float* lost = errors.data() + r * kFeedbackGroup;
    for (int64_t k = first + kFeedbackGroup; k < columns_; ++k) {
      float sum = target[k];
      for (int64_t c = 0; c < kFeedbackGroup; ++c) {
        sum += lost[c] * factors[c * columns_ + k];
      }
      target[k] = sum;
    }
  }
}

}  // namespace shoal

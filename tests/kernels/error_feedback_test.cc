#include "kernels/error_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/math.h"
#include "kernels/rvq_encode.h"
#include "kernels/tcq_encode.h"

namespace shoal {
namespace {

constexpr double kCorrelation = 0.9;

// Inputs whose sum of x x^T is that of a first-order autoregression: H[i][j] = 0.9^|i - j|. They are the columns of
// H's Cholesky factor.
std::vector<float> AutoregressiveInputs(int64_t columns) {
  std::vector<float> inputs;
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < columns; ++i) {
      const double factor = j == 0 ? 1 : std::sqrt(1 - kCorrelation * kCorrelation);
      inputs.push_back(i < j ? 0 : static_cast<float>(factor * std::pow(kCorrelation, i - j)));
    }
  }
  return inputs;
}

InputHessian Autoregressive(int64_t columns) {
  InputHessian hessian(columns);
  hessian.Add(AutoregressiveInputs(columns));
  return hessian;
}

InputHessian Diagonal(int64_t columns) {
  InputHessian hessian(columns);
  for (int64_t i = 0; i < columns; ++i) {
    std::vector<float> x(columns);
    x[i] = static_cast<float>(i % 5);
    hessian.Add(x);
  }
  return hessian;
}

std::vector<float> Gaussian(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> values(count);
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

// U, from what Spread does with errors of one.
std::vector<double> FeedbackOf(const ErrorFeedback& feedback) {
  const int64_t columns = feedback.columns();
  std::vector<double> u;
  for (int64_t i = 0; i < columns; ++i) {
    std::vector<float> errors(kFeedbackGroup);
    errors[i % kFeedbackGroup] = 1;
    std::vector<float> row(columns);
    feedback.Spread(i / kFeedbackGroup, errors, row);
    u.insert(u.end(), row.begin(), row.end());
  }
  return u;
}

TEST(InputHessianTest, IsTheSumOfProductsForAnyPartsOfItsRows) {
  constexpr int64_t kColumns = 13;
  const std::vector<float> x = Gaussian(21 * kColumns, 1);
  InputHessian whole(kColumns);
  whole.Add(x);
  InputHessian parts(kColumns);
  parts.AddRows(x, 7, kColumns);
  parts.AddRows(x, 0, 7);
  for (int64_t i = 0; i < kColumns; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < 21; ++t) {
        sum += double{x[t * kColumns + i]} * double{x[t * kColumns + j]};
      }
      EXPECT_EQ(whole.at(i, j), sum);
      EXPECT_EQ(parts.at(i, j), sum);
    }
  }
  whole.Add(parts, 0.5);
  EXPECT_EQ(whole.at(3, 2), 1.5 * parts.at(3, 2));
}

// With H = (I + U) D (I + U)^T, U is what eliminates the columns after a block: (I + U) D has H's blocks above the
// diagonal once what later blocks give is added. Checked by putting H together again.
TEST(ErrorFeedbackTest, FactorsTheDampedHessianIntoBlocks) {
  constexpr int64_t kColumns = 40;
  const InputHessian hessian = Autoregressive(kColumns);
  const std::vector<double> u = FeedbackOf(ErrorFeedback(hessian));
  // D = (I + U)^-1 H (I + U)^-T, by substitution from the last row up, with U above the diagonal.
  std::vector<double> d(kColumns * kColumns);
  for (int64_t i = 0; i < kColumns; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      // The diagonal of H is 1, so its mean is too.
      d[i * kColumns + j] = std::pow(kCorrelation, std::abs(i - j)) + (i == j ? 0.01 : 0);
    }
  }
  const auto eliminate = [&u, &d](bool rows) {
    for (int64_t i = kColumns - 1; i >= 0; --i) {
      for (int64_t k = i + 1; k < kColumns; ++k) {
        for (int64_t j = 0; j < kColumns; ++j) {
          double& into = rows ? d[i * kColumns + j] : d[j * kColumns + i];
          into -= u[i * kColumns + k] * (rows ? d[k * kColumns + j] : d[j * kColumns + k]);
        }
      }
    }
  };
  eliminate(true);
  eliminate(false);
  for (int64_t i = 0; i < kColumns; ++i) {
    EXPECT_GT(d[i * kColumns + i], 0.01);
    for (int64_t j = 0; j < kColumns; ++j) {
      if (i / kFeedbackGroup != j / kFeedbackGroup) {
        EXPECT_NEAR(d[i * kColumns + j], 0, 1e-6) << i << ' ' << j;
      }
      if (j < (i / kFeedbackGroup + 1) * kFeedbackGroup) {
        EXPECT_EQ(u[i * kColumns + j], 0) << "only later groups get anything";
      }
    }
  }
}

TEST(ErrorFeedbackTest, IsZeroWhereInputsDoNotGoTogether) {
  for (const InputHessian& hessian : {InputHessian(24), Diagonal(24), Diagonal(20)}) {
    const ErrorFeedback feedback(hessian);
    EXPECT_EQ(feedback.columns(), 24);
    EXPECT_THAT(FeedbackOf(feedback), ::testing::Each(0.0));
  }
}

struct Coded {
  std::vector<float> weights;  // what the codes stand for
  std::vector<uint16_t> scales;
  std::vector<uint32_t> codes;
};

// Both codecs behind one face: with feedback, or without where there is none.
Coded EncodeAsTcq(const std::vector<float>& weights, int64_t columns,
                  const ErrorFeedback* feedback) {
  const int64_t rows = std::ssize(weights) / columns;
  const TcqShape shape = TcqShapeOf(rows, columns);
  Coded coded;
  coded.scales.resize(rows);
  std::vector<uint8_t> codes(shape.bytes());
  if (feedback == nullptr) {
    EncodeTcq(shape, weights, columns, coded.scales, codes);
  } else {
    std::vector<float> targets = weights;
    EncodeTcqWithFeedback(shape, *feedback, targets, coded.scales, codes);
  }
  coded.codes.assign(codes.begin(), codes.end());
  std::vector<int8_t> values(shape.padded_columns());
  for (int64_t r = 0; r < rows; ++r) {
    DecodeTcqRow(shape, codes, r, values);
    for (int64_t i = 0; i < columns; ++i) {
      coded.weights.push_back(HalfToFloat(coded.scales[r]) * values[i]);
    }
  }
  return coded;
}

Coded EncodeAsRvq(const std::vector<float>& weights, int64_t columns,
                  const ErrorFeedback* feedback) {
  const int64_t rows = std::ssize(weights) / columns;
  const std::vector<float> sample = Gaussian(4096 * kSubVectorSize, 7);
  std::vector<float> normal;
  for (const float value : sample) {
    normal.push_back(value / 0.02F);
  }
  float grid = 0;
  const RvqCodebook book = TrainRvqCodebook(normal, 4096, {.iterations = 2}, &grid);
  const RvqEncoder encoder(book, grid, kRvqEncodeBeam);
  Coded coded;
  coded.scales.resize(rows);
  coded.codes.resize(weights.size() / kSubVectorSize);
  const int64_t positions = columns / kSubVectorSize;
  const auto codes_of = [&](int64_t r) {
    return std::span(coded.codes).subspan(r * positions, positions);
  };
  if (feedback == nullptr) {
    for (int64_t r = 0; r < rows; ++r) {
      coded.scales[r] =
          encoder.EncodeRow(std::span(weights).subspan(r * columns, columns), codes_of(r));
    }
  } else {
    std::vector<float> targets = weights;
    encoder.EncodeRows(*feedback, targets, coded.codes, coded.scales);
  }
  coded.weights.resize(weights.size());
  for (int64_t r = 0; r < rows; ++r) {
    DecodeRvqRow(book, codes_of(r), coded.scales[r],
                 std::span(coded.weights).subspan(r * columns, columns));
  }
  return coded;
}

using Encode = Coded (*)(const std::vector<float>&, int64_t, const ErrorFeedback*);

class FeedbackEncodingTest : public ::testing::TestWithParam<Encode> {};
INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackEncodingTest,
                         ::testing::Values(&EncodeAsTcq, &EncodeAsRvq), [](const auto& info) {
                           return info.index == 0 ? std::string("tcq3") : std::string("rvq3");
                         });

TEST_P(FeedbackEncodingTest, GivesThePlainBytesWhereInputsDoNotGoTogether) {
  constexpr int64_t kColumns = 48;
  std::vector<float> weights = Gaussian(11 * kColumns, 3);
  std::fill(weights.begin() + kColumns, weights.begin() + 2 * kColumns, 0.0F);  // a row of zeros
  const Coded plain = GetParam()(weights, kColumns, nullptr);
  for (const InputHessian& hessian : {InputHessian(kColumns), Diagonal(kColumns)}) {
    const ErrorFeedback feedback(hessian);
    const Coded coded = GetParam()(weights, kColumns, &feedback);
    EXPECT_EQ(coded.codes, plain.codes);
    EXPECT_EQ(coded.scales, plain.scales);
  }
}

// sum over rows of e H e^T, e the row's error.
double LossOf(const std::vector<float>& weights, const Coded& coded, int64_t columns) {
  double loss = 0;
  for (size_t first = 0; first < weights.size(); first += columns) {
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        loss += (double{weights[first + i]} - coded.weights[first + i]) *
                (double{weights[first + j]} - coded.weights[first + j]) *
                std::pow(kCorrelation, std::abs(i - j));
      }
    }
  }
  return loss;
}

// What is lost of a column that is k before the first of the later groups cannot be made up for beyond
// 1 - 0.9^2k of it: the mean of that over k = 1...8 is 1 - 0.81 (1 - 0.81^8) / (8 * 0.19) = 0.566, against 1 without
// feedback. (The last group has nothing after it: 1 in its place, so of 32 groups 0.579.)
TEST_P(FeedbackEncodingTest, LosesAsMuchLessAsTheCorrelationAllows) {
  constexpr int64_t kColumns = 256;
  constexpr double kExpected = (31 * 0.566 + 1) / 32;
  const std::vector<float> weights = Gaussian(64 * kColumns, 5);
  const ErrorFeedback feedback(Autoregressive(kColumns));
  const Coded plain = GetParam()(weights, kColumns, nullptr);
  const Coded coded = GetParam()(weights, kColumns, &feedback);
  const double ratio = LossOf(weights, coded, kColumns) / LossOf(weights, plain, kColumns);
  EXPECT_NEAR(ratio, kExpected, 0.06);
}

}  // namespace
}  // namespace shoal

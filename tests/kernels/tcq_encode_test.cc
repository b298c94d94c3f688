#include "kernels/tcq_encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <hwy/highway.h>

#include "kernels/input_rotation.h"
#include "kernels/math.h"
#include "kernels/tcq_viterbi.h"

namespace shoal {
namespace {

std::vector<float> Gaussian(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

std::vector<float> StudentT4(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::student_t_distribution<float> student(4);
  std::vector<float> values(static_cast<size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return student(random); });
  return values;
}

struct Coded {
  std::vector<uint16_t> scales;
  std::vector<uint8_t> codes;
};

Coded Encode(const TcqShape& shape, const std::vector<float>& weights, int64_t columns) {
  Coded coded{std::vector<uint16_t>(static_cast<size_t>(shape.rows)),
              std::vector<uint8_t>(static_cast<size_t>(shape.bytes()))};
  EncodeTcq(shape, weights, columns, coded.scales, coded.codes);
  return coded;
}

std::vector<float> Decode(const TcqShape& shape, const Coded& coded, int64_t columns) {
  std::vector<float> weights;
  std::vector<int8_t> values(static_cast<size_t>(shape.padded_columns()));
  for (int64_t r = 0; r < shape.rows; ++r) {
    DecodeTcqRow(shape, coded.codes, r, values);
    for (int64_t i = 0; i < columns; ++i) {
      weights.push_back(HalfToFloat(coded.scales[static_cast<size_t>(r)]) *
                        static_cast<float>(values[static_cast<size_t>(i)]));
    }
  }
  return weights;
}

// ||W - Wq||^2 / ||W||^2.
double RelativeSquaredError(const std::vector<float>& weights, const std::vector<float>& coded) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double difference = double{weights[i]} - double{coded[i]};
    error += difference * difference;
    norm += double{weights[i]} * double{weights[i]};
  }
  return error / norm;
}

double CodingError(const std::vector<float>& weights, int64_t rows, int64_t columns) {
  const TcqShape shape = TcqShapeOf(rows, columns);
  return RelativeSquaredError(weights, Decode(shape, Encode(shape, weights, columns), columns));
}

// As the converter does: rotated with a block of 128, coded, compared.
double RotatedCodingError(const std::vector<float>& weights, int64_t rows, int64_t columns) {
  const InputRotation rotation(columns, 1);
  std::vector<float> rotated;
  std::vector<double> row(static_cast<size_t>(columns));
  for (int64_t r = 0; r < rows; ++r) {
    rotation.Rotate(std::span(weights).subspan(static_cast<size_t>(r * columns), row.size()), row);
    for (const double value : row) {
      rotated.push_back(static_cast<float>(value * rotation.normalization()));
    }
  }
  return CodingError(rotated, rows, columns);
}

constexpr int64_t kRows = 256;
constexpr int64_t kColumns = 1152;  // 9 blocks of 128

// The bound of rate-distortion theory at 3 bits is 2^-6 = 0.0156; residual vector quantization has 0.029.
TEST(TcqEncodeTest, GaussianWeightsLoseWhatTheStudyFound) {
  const double error = CodingError(Gaussian(kRows * kColumns, 1), kRows, kColumns);
  EXPECT_LE(error, 0.022);
  EXPECT_GE(error, 0.0156);
}

TEST(TcqEncodeTest, HeavyTailsLoseLittleMoreWhenRotated) {
  const std::vector<float> weights = StudentT4(kRows * kColumns, 2);
  const double error = RotatedCodingError(weights, kRows, kColumns);
  EXPECT_LE(error, 0.024);
  EXPECT_LT(error, CodingError(weights, kRows, kColumns) * 0.8);
}

TEST(TcqEncodeTest, OutlierColumnsLoseLittleMoreWhenRotated) {
  std::vector<float> weights = Gaussian(kRows * kColumns, 3);
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] *= i % kColumns % 100 == 7 ? 20.0F : 1.0F;
  }
  EXPECT_LE(RotatedCodingError(weights, kRows, kColumns), 0.034);
  EXPECT_GE(CodingError(weights, kRows, kColumns), 0.05);
}

// Shapes that fill no bundle, and chains as short as a row.
TEST(TcqEncodeTest, SmallMatricesAreCodedWithTheirPadding) {
  for (const int64_t columns : {1, 8, 16, 20, 36, 192}) {
    for (const int64_t rows : {1, 8, 16, 130}) {
      const std::vector<float> weights = Gaussian(rows * columns, 4);
      const double error = CodingError(weights, rows, columns);
      EXPECT_LT(error, rows >= 16 ? 0.04 : 0.3) << rows << " x " << columns;
    }
  }
}

TEST(TcqEncodeTest, ScalesFollowTheWeights) {
  const TcqShape shape = TcqShapeOf(4, 64);
  const std::vector<float> weights = Gaussian(4 * 64, 5);
  std::vector<float> scaled = weights;
  for (size_t i = 0; i < scaled.size(); ++i) {
    scaled[i] *= i / 64 == 2 ? 1024.0F : 0.5F;
  }
  const Coded coded = Encode(shape, weights, 64);
  const Coded other = Encode(shape, scaled, 64);
  EXPECT_EQ(coded.codes, other.codes);
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(HalfToFloat(other.scales[r]),
              HalfToFloat(coded.scales[r]) * (r == 2 ? 1024.0F : 0.5F));
  }
}

// Zeros, what underflows, and what float16 cannot hold, without harm to the rows beside them in a chain.
TEST(TcqEncodeTest, ExtremeRowsPoisonNoNeighbour) {
  const TcqShape shape = TcqShapeOf(6, 128);
  std::vector<float> weights = Gaussian(6 * 128, 6);
  for (size_t i = 0; i < 128; ++i) {
    weights[128 + i] = 0;
    weights[256 + i] *= 1e-12F;
    weights[384 + i] *= 1e-42F;
    weights[512 + i] *= 1e30F;
  }
  const Coded coded = Encode(shape, weights, 128);
  EXPECT_EQ(coded.scales[1], 0);
  EXPECT_EQ(coded.scales[2], 0);
  EXPECT_EQ(coded.scales[3], 0);
  EXPECT_EQ(HalfToFloat(coded.scales[4]), std::numeric_limits<float>::infinity());
  const std::vector<float> decoded = Decode(shape, coded, 128);
  for (const size_t row : {size_t{0}, size_t{5}}) {
    const auto begin = static_cast<int64_t>(row * 128);
    EXPECT_LT(RelativeSquaredError({weights.begin() + begin, weights.begin() + begin + 128},
                                   {decoded.begin() + begin, decoded.begin() + begin + 128}),
              0.05);
  }
}

// The cost of a path through the trellis, by the definition.
int64_t Cost(const std::vector<int16_t>& x, const std::vector<uint8_t>& symbols, int64_t chain) {
  int64_t cost = 0;
  uint32_t window = kTcqStart;
  for (size_t i = static_cast<size_t>(chain); i < x.size(); i += kTcqChains) {
    window = window >> 3 | uint32_t{symbols[i]} << 5;
    const int64_t difference = x[i] - kTcqInputScale * TcqValue(window);
    cost += difference * difference;
  }
  return cost;
}

// The least cost there is, by dynamic programming over all states in the plainest form.
int64_t LeastCost(const std::vector<int16_t>& x, int64_t chain) {
  constexpr int64_t kNever = int64_t{1} << 50;
  std::vector<int64_t> costs(32, kNever);
  costs[kTcqStart >> 3] = 0;
  for (size_t i = static_cast<size_t>(chain); i < x.size(); i += kTcqChains) {
    std::vector<int64_t> next(32, kNever);
    for (uint32_t state = 0; state < 32; ++state) {
      for (uint32_t symbol = 0; symbol < 8; ++symbol) {
        const uint32_t window = state | symbol << 5;
        const int64_t difference = x[i] - kTcqInputScale * TcqValue(window);
        next[window >> 3] = std::min(next[window >> 3], costs[state] + difference * difference);
      }
    }
    costs = next;
  }
  return *std::min_element(costs.begin(), costs.end());
}

std::vector<int16_t> RandomInput(int64_t steps, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, kTcqInputScale * kTcqDeviation);
  std::vector<int16_t> x(static_cast<size_t>(steps * kTcqChains));
  for (int16_t& value : x) {
    value = static_cast<int16_t>(
        std::clamp(normal(random), -1.0 * kTcqInputLimit, 1.0 * kTcqInputLimit));
  }
  return x;
}

TEST(TcqViterbiTest, FindsThePathOfLeastError) {
  TcqViterbi viterbi;
  for (const int64_t steps : {1, 2, 8, 100, 999, 1500, 5000}) {
    std::vector<int16_t> x = RandomInput(steps, static_cast<uint32_t>(steps));
    // Two chains of the largest weights there are, as long as all of a chain is looked at before anything is
    // decided: theirs is no path that all paths soon join.
    for (int64_t i = 0; i < steps && steps < 1000; ++i) {
      x[static_cast<size_t>(i * kTcqChains)] = static_cast<int16_t>(kTcqInputLimit);
      x[static_cast<size_t>(i * kTcqChains + 1)] =
          static_cast<int16_t>(i % 3 == 0 ? -kTcqInputLimit : kTcqInputLimit);
    }
    std::vector<uint8_t> symbols(x.size());
    viterbi.Search(x.data(), steps, symbols.data());
    for (int64_t chain = 0; chain < kTcqChains; ++chain) {
      EXPECT_EQ(Cost(x, symbols, chain), LeastCost(x, chain)) << steps << " steps, " << chain;
    }
  }
}

// With the vectors of every CPU that this one can play.
TEST(TcqViterbiTest, EveryInstructionSetFindsTheSameSymbols) {
  const std::vector<int16_t> x = RandomInput(3000, 7);
  std::vector<std::vector<uint8_t>> found;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    std::vector<uint8_t> symbols(x.size());
    TcqViterbi().Search(x.data(), 3000, symbols.data());
    found.push_back(symbols);
  }
  hwy::SetSupportedTargetsForTest(0);
  for (const std::vector<uint8_t>& symbols : found) {
    EXPECT_EQ(symbols, found.front());
  }
}

TEST(InputRotationTest, KeepsDotProductsAndComesBack) {
  for (const int64_t columns : {1, 7, 8, 20, 36, 192, 2304, 7168}) {
    const InputRotation rotation(columns, 9);
    EXPECT_EQ(columns % rotation.block(), 0);
    EXPECT_TRUE(rotation.block() == 256 || columns / rotation.block() % 2 == 1);
    const std::vector<float> x = Gaussian(columns, 1);
    const std::vector<float> w = Gaussian(columns, 2);
    std::vector<double> rotated_x(x.size());
    std::vector<double> rotated_w(x.size());
    rotation.Rotate(x, rotated_x);
    rotation.Rotate(w, rotated_w);
    double dot = 0;
    double rotated = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      dot += double{x[i]} * double{w[i]};
      rotated += rotated_x[i] * rotated_w[i];
      rotated_x[i] *= rotation.normalization();
    }
    EXPECT_NEAR(rotated / static_cast<double>(rotation.block()), dot, 1e-11);
    rotation.RotateBack(rotated_x);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(rotated_x[i], x[i], 1e-14);
    }
  }
}

// The definition, element by element: the entry of the Walsh-Hadamard matrix is the parity of i & j.
TEST(InputRotationTest, IsTheWalshHadamardTransformOfEveryBlock) {
  constexpr int64_t kSize = 24;  // three blocks of eight
  const InputRotation rotation(kSize, 3);
  ASSERT_EQ(rotation.block(), 8);
  std::vector<double> column(kSize);
  int negative = 0;
  for (int64_t j = 0; j < kSize; ++j) {
    std::vector<float> unit(kSize, 0.0F);
    unit[static_cast<size_t>(j)] = 1;
    rotation.Rotate(unit, column);
    const double sign = column[static_cast<size_t>(j / 8 * 8)];
    negative += sign < 0 ? 1 : 0;
    for (int64_t i = 0; i < kSize; ++i) {
      const double parity = __builtin_popcount(static_cast<unsigned>(i & j & 7)) % 2 == 0 ? 1 : -1;
      EXPECT_EQ(column[static_cast<size_t>(i)], i / 8 == j / 8 ? sign * parity : 0);
    }
  }
  EXPECT_GT(negative, 4);
  EXPECT_LT(negative, 20);
}

}  // namespace
}  // namespace shoal

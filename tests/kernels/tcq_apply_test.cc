#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation_quant.h"
#include "kernels/expert_apply.h"
#include "kernels/expert_apply_rows.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/fixed_point.h"
#include "kernels/math.h"
#include "kernels/tcq_encode.h"

namespace shoal {
namespace {

constexpr double kStep = 0x1p-36;

struct Shape {
  int64_t hidden_size;
  int64_t unit_width;
};
// Real widths, the tiny model's, and hidden sizes that fill no bundle and allow no rotation.
constexpr Shape kShapes[] = {{192, 8}, {2304, 128}, {20, 8}, {7, 16}, {65, 32}, {1024, 64}};

// A unit of random codes.
struct Unit {
  Unit(Shape the_shape, uint32_t seed)
      : shape(the_shape),
        gate_up_shape(TcqShapeOf(2 * shape.unit_width, shape.hidden_size)),
        down_shape(TcqShapeOf(shape.hidden_size, shape.unit_width)),
        rotations(ExpertRotations::Of(shape.hidden_size, shape.unit_width, 5)),
        random(seed),
        gate_up_codes(RandomBytes(gate_up_shape.bytes())),
        down_codes(RandomBytes(down_shape.bytes())),
        gate_up_scales(Scales(2 * shape.unit_width, shape.hidden_size)),
        down_scales(Scales(shape.hidden_size, shape.unit_width)) {}

  CodedUnit View() const {
    return {shape.hidden_size,     shape.unit_width,
            gate_up_scales.data(), gate_up_scales.data() + shape.unit_width,
            down_scales.data(),    gate_up_codes.data(),
            down_codes.data()};
  }

  std::vector<uint8_t> RandomBytes(int64_t count) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count));
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random()); });
    return bytes;
  }
  // Weights of rms about 1 / sqrt(columns): values have an rms near 20.
  std::vector<uint16_t> Scales(int64_t rows, int64_t columns) {
    std::vector<uint16_t> bits(static_cast<size_t>(rows));
    for (uint16_t& b : bits) {
      const float spread = 0.5F + static_cast<float>(random() % 1000) / 1000.0F;
      b = FloatToHalf(spread / (20.0F * std::sqrt(static_cast<float>(columns))));
    }
    return bits;
  }

  Shape shape;
  TcqShape gate_up_shape;
  TcqShape down_shape;
  ExpertRotations rotations;
  std::mt19937 random;
  std::vector<uint8_t> gate_up_codes;
  std::vector<uint8_t> down_codes;
  std::vector<uint16_t> gate_up_scales;
  std::vector<uint16_t> down_scales;
};

// The matrix that codes stand for, [rows, columns], in double.
std::vector<double> Dequantize(const TcqShape& shape, int64_t columns,
                               const std::vector<uint8_t>& codes,
                               const std::vector<uint16_t>& scales, const InputRotation& rotation) {
  std::vector<double> matrix;
  std::vector<int8_t> values(static_cast<size_t>(shape.padded_columns()));
  for (int64_t r = 0; r < shape.rows; ++r) {
    DecodeTcqRow(shape, codes, r, values);
    std::vector<double> row;
    for (int64_t i = 0; i < columns; ++i) {
      row.push_back(double{HalfToFloat(scales[static_cast<size_t>(r)])} *
                    static_cast<double>(values[static_cast<size_t>(i)]));
    }
    rotation.RotateBack(row);
    matrix.insert(matrix.end(), row.begin(), row.end());
  }
  return matrix;
}

std::vector<double> Multiply(const std::vector<double>& matrix, const std::vector<double>& x) {
  std::vector<double> out;
  for (size_t begin = 0; begin < matrix.size(); begin += x.size()) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += matrix[begin + i] * x[i];
    }
    out.push_back(sum);
  }
  return out;
}

// The unit's output in plain double arithmetic on the dequantized matrices.
std::vector<double> Expected(const Unit& unit, const std::vector<float>& x, double weight) {
  const std::vector<double> sums =
      Multiply(Dequantize(unit.gate_up_shape, unit.shape.hidden_size, unit.gate_up_codes,
                          unit.gate_up_scales, unit.rotations.input),
               {x.begin(), x.end()});
  std::vector<double> activated;
  const auto width = static_cast<size_t>(unit.shape.unit_width);
  for (size_t i = 0; i < width; ++i) {
    activated.push_back(sums[i] / (1 + std::exp(-sums[i])) * sums[width + i]);
  }
  std::vector<double> out =
      Multiply(Dequantize(unit.down_shape, unit.shape.unit_width, unit.down_codes, unit.down_scales,
                          unit.rotations.unit),
               activated);
  for (double& value : out) {
    value *= weight;
  }
  return out;
}

std::vector<float> RandomRow(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  std::generate(x.begin(), x.end(), [&] { return normal(random); });
  return x;
}

// Scratch of exactly the stated size, filled with rubbish, aligned to 64 bytes, with a guard behind it.
class Scratch {
 public:
  explicit Scratch(int64_t size) : size_(static_cast<size_t>(size)), bytes_(size_ + 192) {
    std::memset(bytes_.data(), 0xA5, bytes_.size());
    begin_ = (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64;
  }
  std::span<std::byte> span() { return std::span(bytes_).subspan(begin_, size_); }
  bool GuardIsWhole() const {
    return std::all_of(bytes_.begin() + static_cast<int64_t>(begin_ + size_), bytes_.end(),
                       [](std::byte b) { return b == std::byte{0xA5}; });
  }

 private:
  size_t size_;
  std::vector<std::byte> bytes_;
  size_t begin_ = 0;
};

// A row of activations, made ready for a unit.
struct Prepared {
  Prepared(const Unit& unit, int planes, const std::vector<float>& x)
      : storage(TcqRowWords(unit.shape.hidden_size) * static_cast<int64_t>(sizeof(int32_t))) {
    Scratch scratch(TcqRowScratchBytes(unit.shape.hidden_size));
    row = PrepareTcqRow(unit.rotations.input, planes, x,
                        {reinterpret_cast<int32_t*>(storage.span().data()),
                         static_cast<size_t>(TcqRowWords(unit.shape.hidden_size))},
                        scratch.span());
    EXPECT_TRUE(storage.GuardIsWhole());
    EXPECT_TRUE(scratch.GuardIsWhole());
  }
  Scratch storage;  // what the row points into
  TcqPreparedRow row;
};

bool ApplyWith(const TcqKernels& kernels, const Unit& unit, const std::vector<float>& x,
               double weight, std::vector<int64_t>& out) {
  Prepared prepared(unit, kernels.planes, x);
  const TcqPreparedRow& row = prepared.row;
  Scratch scratch(ExpertScratchBytes(unit.shape.hidden_size, unit.shape.unit_width));
  const bool ok =
      ApplyTcqUnit(kernels, unit.View(), unit.rotations.unit, row, weight, scratch.span(), out);
  EXPECT_TRUE(scratch.GuardIsWhole());
  return ok;
}

class TcqApplyTest : public ::testing::TestWithParam<ExpertArithmetic> {
 protected:
  // With the kernels of every instruction set, which agree to the bit.
  static bool Apply(const Unit& unit, const std::vector<float>& x, double weight,
                    std::vector<int64_t>& out) {
    const std::vector<int64_t> before = out;
    const bool ok = ApplyWith(TcqKernelsScalar(GetParam()), unit, x, weight, out);
    for (const KernelTarget target : SupportedKernelTargets()) {
      std::vector<int64_t> again = before;
      EXPECT_EQ(ApplyWith(TcqKernelsOf(target, GetParam()), unit, x, weight, again), ok);
      EXPECT_EQ(again, out) << KernelTargetName(target);
    }
    return ok;
  }
  // Of the largest difference from double arithmetic, by the largest output. A plane less is 2^7 times as coarse.
  static double Tolerance() {
    return GetParam() == ExpertArithmetic::kExact ? 3.6e-6 : 128 * 3.6e-6;
  }
};

std::vector<int64_t> Zeros(Shape shape) {
  return std::vector<int64_t>(static_cast<size_t>(shape.hidden_size));
}

TEST_P(TcqApplyTest, AgreesWithDoubleArithmeticOnTheDequantizedWeights) {
  for (const Shape shape : kShapes) {
    for (const double weight : {1.0, -2.446}) {
      const Unit unit(shape, 2);
      const std::vector<float> x = RandomRow(shape.hidden_size, 3);
      const std::vector<double> expected = Expected(unit, x, weight);
      std::vector<int64_t> out = Zeros(shape);
      ASSERT_TRUE(Apply(unit, x, weight, out));
      double largest = 0;
      double worst = 0;
      for (size_t j = 0; j < out.size(); ++j) {
        largest = std::max(largest, std::fabs(expected[j]));
        worst = std::max(worst, std::fabs(static_cast<double>(out[j]) * kStep - expected[j]));
      }
      EXPECT_LE(worst / largest, Tolerance()) << shape.hidden_size << " x " << shape.unit_width;
    }
  }
}

TEST_P(TcqApplyTest, AddsToWhatIsThereAndZerosAddNothing) {
  constexpr Shape kShape = {192, 8};
  const Unit unit(kShape, 10);
  std::vector<int64_t> from_zero = Zeros(kShape);
  std::vector<int64_t> from_seven(192, 7);
  ASSERT_TRUE(Apply(unit, RandomRow(192, 11), 1.0, from_zero));
  ASSERT_TRUE(Apply(unit, RandomRow(192, 11), 1.0, from_seven));
  ASSERT_TRUE(Apply(unit, std::vector<float>(192, 0.0F), 1.0, from_seven));
  ASSERT_TRUE(Apply(unit, RandomRow(192, 12), 0.0, from_seven));
  for (size_t j = 0; j < 192; ++j) {
    EXPECT_EQ(from_seven[j], from_zero[j] + 7);
  }
}

// The last unit of an expert is padded with rows of scale zero, whatever their codes are.
TEST_P(TcqApplyTest, RowsOfScaleZeroContributeNothing) {
  constexpr Shape kShape = {64, 16};
  Unit unit(kShape, 16);
  std::fill(unit.gate_up_scales.begin() + 8, unit.gate_up_scales.begin() + 16, 0);
  const std::vector<float> x = RandomRow(64, 17);
  std::vector<int64_t> out = Zeros(kShape);
  ASSERT_TRUE(Apply(unit, x, 1.0, out));
  std::fill(unit.gate_up_scales.begin() + 24, unit.gate_up_scales.end(), FloatToHalf(60000.0F));
  std::vector<int64_t> again = Zeros(kShape);
  ASSERT_TRUE(Apply(unit, x, 1.0, again));
  EXPECT_EQ(out, again);
}

TEST_P(TcqApplyTest, TermsThatAreNotFiniteOrOutOfRangeAreReported) {
  constexpr Shape kShape = {96, 8};
  const Unit unit(kShape, 19);
  const std::vector<float> x = RandomRow(96, 20);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<int64_t> out = Zeros(kShape);
  for (const float bad : {std::nanf(""), kInf, -kInf, 1e38F}) {
    std::vector<float> row = x;
    row[13] = bad;
    EXPECT_FALSE(Apply(unit, row, 1.0, out)) << bad;
  }
  for (const double bad : {std::nan(""), double{kInf}, 1e9}) {
    EXPECT_FALSE(Apply(unit, x, bad, out)) << bad;
  }
  for (const uint16_t half : {uint16_t{0x7E00}, uint16_t{0x7C00}}) {
    for (auto scales : {&Unit::gate_up_scales, &Unit::down_scales}) {
      Unit bad = unit;
      (bad.*scales)[3] = half;
      EXPECT_FALSE(Apply(bad, x, 1.0, out)) << half;
    }
  }
}

// Activations so small that squares underflow, and of every size in one row.
TEST_P(TcqApplyTest, DenormalsAndExtremeSpreadsAreExactToTheirLargest) {
  constexpr Shape kShape = {256, 16};
  const Unit unit(kShape, 21);
  std::vector<float> x = RandomRow(256, 22);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] *= i % 3 == 0 ? 1e-42F : i % 3 == 1 ? 1e-12F : 1.0F;
  }
  const std::vector<double> expected = Expected(unit, x, 1.0);
  std::vector<int64_t> out = Zeros(kShape);
  ASSERT_TRUE(Apply(unit, x, 1.0, out));
  double largest = 0;
  double worst = 0;
  for (size_t j = 0; j < out.size(); ++j) {
    largest = std::max(largest, std::fabs(expected[j]));
    worst = std::max(worst, std::fabs(static_cast<double>(out[j]) * kStep - expected[j]));
  }
  EXPECT_LE(worst / largest, Tolerance());
}

// Rows together give what each gives alone, whatever the others are: a row that breaks breaks no other.
TEST_P(TcqApplyTest, RowsTogetherGiveTheBitsOfEach) {
  for (const Shape shape : kShapes) {
    const Unit unit(shape, 30);
    const auto hidden_size = static_cast<size_t>(shape.hidden_size);
    std::vector<std::vector<float>> x;
    for (uint32_t r = 0; r < kMostRowsTogether; ++r) {
      x.push_back(RandomRow(shape.hidden_size, 31 + r));
    }
    x[1].assign(hidden_size, 0.0F);
    x[2].assign(hidden_size, 1e-41F);
    x[3][2] = std::nanf("");
    for (const KernelTarget target : SupportedKernelTargets()) {
      const TcqKernels& kernels = TcqKernelsOf(target, GetParam());
      for (const size_t count : {size_t{1}, size_t{3}, size_t{4}, size_t{11}, x.size()}) {
        std::vector<std::unique_ptr<Prepared>> prepared;
        std::vector<WeightedRow> rows;
        std::vector<std::vector<int64_t>> expected;
        for (size_t a = 0; a < count; ++a) {
          prepared.push_back(std::make_unique<Prepared>(unit, kernels.planes, x[a]));
          rows.push_back({prepared[a]->row, 0.25 * static_cast<double>(a) - 1});
          expected.push_back(Zeros(shape));
          EXPECT_EQ(ApplyWith(kernels, unit, x[a], rows[a].weight, expected[a]), a != 3);
        }
        std::vector<std::vector<int64_t>> out(count, Zeros(shape));
        Scratch scratch(ExpertRowsScratchBytes(shape.hidden_size, shape.unit_width));
        const bool ok = ApplyTcqUnitToRows(
            kernels, unit.View(), unit.rotations.unit, rows, scratch.span(),
            [&](size_t row, int64_t first, std::span<const double> terms) {
              return AddFixedPoint(
                  terms, std::span(out[row]).subspan(static_cast<size_t>(first), terms.size()));
            });
        EXPECT_EQ(ok, count <= 3);
        EXPECT_TRUE(scratch.GuardIsWhole());
        for (size_t a = 0; a < count; ++a) {
          if (a != 3) {
            ASSERT_EQ(out[a], expected[a])
                << KernelTargetName(target) << ", row " << a << " of " << count;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, TcqApplyTest,
                         ::testing::Values(ExpertArithmetic::kExact, ExpertArithmetic::kFast),
                         [](const auto& info) {
                           return std::string(ExpertArithmeticName(info.param));
                         });

}  // namespace
}  // namespace shoal

#include "kernels/expert_apply.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation_quant.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"
#include "kernels/math.h"

namespace shoal {
namespace {

constexpr double kStep = 0x1p-36;

struct Shape {
  int64_t hidden_size;
  int64_t unit_width;
};
// Real widths, the tiny model's, and a hidden size that fills no whole number of positions.
constexpr Shape kShapes[] = {{192, 8}, {2304, 128}, {20, 8}, {7, 16}, {65, 32}};

// One unit in both codecs' terms: plain matrices, and for rvq3 the bytes they were decoded from.
struct Unit {
  Shape shape{};
  std::vector<float> gate;  // [unit_width, hidden_size]
  std::vector<float> up;
  std::vector<float> down;  // [hidden_size, unit_width]
  std::vector<uint16_t> gate_scales;
  std::vector<uint16_t> up_scales;
  std::vector<uint16_t> down_scales;
  std::vector<uint8_t> gate_up_planes;
  std::vector<uint8_t> down_planes;

  F32Unit AsF32() const {
    return {shape.hidden_size, shape.unit_width, gate.data(), up.data(), down.data()};
  }
  CodedUnit AsRvq() const {
    return {shape.hidden_size,  shape.unit_width,      gate_scales.data(), up_scales.data(),
            down_scales.data(), gate_up_planes.data(), down_planes.data()};
  }
};

int64_t Positions(int64_t n) { return (n + 7) / 8; }

LayerCodebooks RandomBooks(uint32_t seed) {
  std::mt19937 random(seed);
  LayerCodebooks books;
  for (RvqCodebook* book : {&books.gate, &books.up, &books.down}) {
    for (int8_t& value : book->values) {
      value = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    }
  }
  return books;
}

// Fills `planes` at byte `first` with random codes, 3 planes of `rows` bytes a position, and writes
// the weights they stand for: matrix[row, 8 p + d] = scale[row] * (sum of the four entries' d).
void RandomCodes(const RvqCodebook& book, const std::vector<uint16_t>& scales, int64_t positions,
                 int64_t position_stride, int64_t first, int64_t cols, std::mt19937& random,
                 std::vector<uint8_t>& planes, std::vector<float>& matrix) {
  const auto rows = static_cast<int64_t>(scales.size());
  matrix.assign(static_cast<size_t>(rows * cols), 0.0F);
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t r = 0; r < rows; ++r) {
      const uint32_t code = random() & 0xFFFFFF;
      for (int64_t plane = 0; plane < 3; ++plane) {
        planes[static_cast<size_t>(first + p * position_stride + plane * rows + r)] =
            static_cast<uint8_t>(code >> 8 * plane);
      }
      for (int64_t d = 0; d < 8 && 8 * p + d < cols; ++d) {
        int sum = 0;
        for (int stage = 0; stage < 4; ++stage) {
          sum += book.values[static_cast<size_t>(
              (stage * 64 + static_cast<int>(code >> 6 * stage & 63)) * 8 + d)];
        }
        matrix[static_cast<size_t>(r * cols + 8 * p + d)] =
            HalfToFloat(scales[static_cast<size_t>(r)]) * static_cast<float>(sum);
      }
    }
  }
}

Unit RandomUnit(Shape shape, const LayerCodebooks& books, uint32_t seed) {
  std::mt19937 random(seed);
  const auto [hidden, width] = shape;
  Unit unit;
  unit.shape = shape;
  // Weights of rms about 1 / sqrt(columns): the sum of four entries has an rms near 150.
  const auto scales = [&random](int64_t rows, int64_t cols) {
    std::vector<uint16_t> bits(static_cast<size_t>(rows));
    for (uint16_t& b : bits) {
      const float spread = 0.5F + static_cast<float>(random() % 1000) / 1000.0F;
      b = FloatToHalf(spread / (150.0F * std::sqrt(static_cast<float>(cols))));
    }
    return bits;
  };
  unit.gate_scales = scales(width, hidden);
  unit.up_scales = scales(width, hidden);
  unit.down_scales = scales(hidden, width);
  unit.gate_up_planes.resize(static_cast<size_t>(Positions(hidden) * 6 * width));
  unit.down_planes.resize(static_cast<size_t>(Positions(width) * 3 * hidden));
  RandomCodes(books.gate, unit.gate_scales, Positions(hidden), 6 * width, 0, hidden, random,
              unit.gate_up_planes, unit.gate);
  RandomCodes(books.up, unit.up_scales, Positions(hidden), 6 * width, 3 * width, hidden, random,
              unit.gate_up_planes, unit.up);
  RandomCodes(books.down, unit.down_scales, Positions(width), 3 * hidden, 0, width, random,
              unit.down_planes, unit.down);
  return unit;
}

std::vector<float> RandomRow(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) {
    value = normal(random);
  }
  return x;
}

// The variance of what rounding adds to one activation: a multiple of a step is off by a standard deviation of
// step / sqrt(12).
double StepVariance(double largest, ExpertArithmetic arithmetic) {
  const double step = largest / ActivationMax(ActivationPlanes(arithmetic));
  return step * step / 12;
}
// And what it adds to a sum of table values of random books (kernels/rvq_shift.h), before a row's scale.
double TableVariance(const std::vector<float>& x, ExpertArithmetic arithmetic) {
  if (arithmetic == ExpertArithmetic::kExact) {
    return 0;
  }
  double largest = 0;
  for (size_t begin = 0; begin < x.size(); begin += 8) {
    double square = 0;
    for (size_t i = begin; i < std::min(begin + 8, x.size()); ++i) {
      square += double{x[i]} * double{x[i]};
    }
    largest = std::max(largest, std::sqrt(square));
  }
  // The longest entry has eight elements of 127; the step is a power of two, so up to twice as wide.
  const double step = 2 * largest * 127 * std::sqrt(8.0) / 32767;
  return 4 * std::ceil(static_cast<double>(x.size()) / 8) * step * step / 12;
}

// The unit's output in plain double arithmetic, and how far the kernels may be from it. Errors of
// many activations add like independent ones, and six standard deviations are allowed.
struct Reference {
  std::vector<double> out;
  std::vector<double> rvq_bound;
  std::vector<double> f32_bound;
};

double ScaleOf(const std::vector<uint16_t>& scales, int64_t row) {
  return double{HalfToFloat(scales[static_cast<size_t>(row)])};
}

Reference Apply(const Unit& unit, const std::vector<float>& x, double weight,
                ExpertArithmetic arithmetic) {
  const auto [hidden, width] = unit.shape;
  double largest_x = 0;
  for (const float value : x) {
    largest_x = std::max(largest_x, std::fabs(double{value}));
  }
  const double x_variance = StepVariance(largest_x, arithmetic);
  const double x_table = TableVariance(x, arithmetic);
  std::vector<double> activated;
  std::vector<float> activated_floats;
  std::vector<double> variances;
  double largest = 0;
  for (int64_t i = 0; i < width; ++i) {
    double gate = 0;
    double up = 0;
    double gate_squares = 0;
    double up_squares = 0;
    for (int64_t j = 0; j < hidden; ++j) {
      const double g = unit.gate[static_cast<size_t>(i * hidden + j)];
      const double u = unit.up[static_cast<size_t>(i * hidden + j)];
      gate += g * double{x[static_cast<size_t>(j)]};
      up += u * double{x[static_cast<size_t>(j)]};
      gate_squares += g * g;
      up_squares += u * u;
    }
    const double silu = gate / (1 + std::exp(-gate));
    constexpr double kSlope = 1.1;  // silu's is never steeper
    activated.push_back(silu * up);
    const double gate_scale = ScaleOf(unit.gate_scales, i);
    const double up_scale = ScaleOf(unit.up_scales, i);
    variances.push_back(kSlope * kSlope * up * up *
                            (x_variance * gate_squares + x_table * gate_scale * gate_scale) +
                        silu * silu * (x_variance * up_squares + x_table * up_scale * up_scale));
    activated_floats.push_back(static_cast<float>(silu * up));
    largest = std::max(largest, std::fabs(silu * up));
  }
  const double table = TableVariance(activated_floats, arithmetic);
  Reference reference;
  for (int64_t j = 0; j < hidden; ++j) {
    double sum = 0;
    const double scale = ScaleOf(unit.down_scales, j);
    double variance = table * scale * scale;
    double magnitude = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double d = unit.down[static_cast<size_t>(j * width + i)];
      sum += d * activated[static_cast<size_t>(i)];
      variance += d * d * (variances[static_cast<size_t>(i)] + StepVariance(largest, arithmetic));
      magnitude += std::fabs(d * activated[static_cast<size_t>(i)]);
    }
    reference.out.push_back(weight * sum);
    // Activations are rounded to float, and the weights here were when they were dequantized.
    const double rounding = std::fabs(weight) * magnitude * 6.1e-8 + kStep;
    reference.f32_bound.push_back(rounding);
    reference.rvq_bound.push_back(std::fabs(weight) * 6 * std::sqrt(variance) + 2 * rounding);
  }
  return reference;
}

// Scratch of exactly the stated size, filled with rubbish, with a guard behind it.
class Scratch {
 public:
  explicit Scratch(Shape shape)
      : size_(static_cast<size_t>(ExpertScratchBytes(shape.hidden_size, shape.unit_width))),
        bytes_(size_ + 192) {
    std::memset(bytes_.data(), 0xA5, bytes_.size());
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    begin_ = (64 - address % 64) % 64;
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

struct Prepared {
  Prepared(const RvqKernels& kernels, const LayerCodebooks& books, const std::vector<float>& x)
      : storage(static_cast<size_t>(RvqPreparedRowElements(static_cast<int64_t>(x.size()))),
                0x5A5A5A),  // rubbish
        row(PrepareRvqRow(kernels, books, x, storage)) {}
  std::vector<int32_t> storage;
  RvqPreparedRow row;
};

bool ApplyRvqWith(const RvqKernels& kernels, const Unit& unit, const LayerCodebooks& books,
                  const std::vector<float>& x, double weight, std::vector<int64_t>& out) {
  const Prepared prepared(kernels, books, x);
  Scratch scratch(unit.shape);
  const bool ok =
      ApplyRvqUnit(kernels, unit.AsRvq(), books, prepared.row, weight, scratch.span(), out);
  EXPECT_TRUE(scratch.GuardIsWhole());
  return ok;
}

class ExpertApplyTest : public ::testing::TestWithParam<ExpertArithmetic> {
 protected:
  // With the kernels of every instruction set, which agree to the bit.
  static bool ApplyRvq(const Unit& unit, const LayerCodebooks& books, const std::vector<float>& x,
                       double weight, std::vector<int64_t>& out) {
    const std::vector<int64_t> before = out;
    const bool ok = ApplyRvqWith(RvqKernelsScalar(GetParam()), unit, books, x, weight, out);
    for (const KernelTarget target : SupportedKernelTargets()) {
      std::vector<int64_t> again = before;
      EXPECT_EQ(ApplyRvqWith(RvqKernelsOf(target, GetParam()), unit, books, x, weight, again), ok);
      EXPECT_EQ(again, out) << KernelTargetName(target);
    }
    return ok;
  }
};

bool ApplyF32(const Unit& unit, const std::vector<float>& x, double weight,
              std::vector<int64_t>& out) {
  Scratch scratch(unit.shape);
  const bool ok = ApplyF32Unit(unit.AsF32(), x, weight, scratch.span(), out);
  EXPECT_TRUE(scratch.GuardIsWhole());
  return ok;
}

std::vector<int64_t> Zeros(Shape shape) {
  return std::vector<int64_t>(static_cast<size_t>(shape.hidden_size));
}

double Norm(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

TEST_P(ExpertApplyTest, BothCodecsAgreeWithDoubleArithmeticOnTheDequantizedWeights) {
  const LayerCodebooks books = RandomBooks(1);
  for (const Shape shape : kShapes) {
    for (const double weight : {1.0, 0.37, -2.446}) {
      const Unit unit = RandomUnit(shape, books, 2);
      const std::vector<float> x = RandomRow(shape.hidden_size, 3);
      const Reference reference = Apply(unit, x, weight, GetParam());
      // The bounds themselves must mean something.
      const double rvq_error = GetParam() == ExpertArithmetic::kExact ? 1e-4 : 2e-2;
      ASSERT_LE(Norm(reference.rvq_bound), rvq_error * Norm(reference.out));
      ASSERT_LE(Norm(reference.f32_bound), 1e-6 * Norm(reference.out));
      std::vector<int64_t> rvq = Zeros(shape);
      std::vector<int64_t> f32 = Zeros(shape);
      ASSERT_TRUE(ApplyRvq(unit, books, x, weight, rvq));
      ASSERT_TRUE(ApplyF32(unit, x, weight, f32));
      for (size_t j = 0; j < rvq.size(); ++j) {
        EXPECT_LE(std::fabs(static_cast<double>(rvq[j]) * kStep - reference.out[j]),
                  reference.rvq_bound[j])
            << shape.hidden_size << " x " << shape.unit_width << " element " << j;
        EXPECT_LE(std::fabs(static_cast<double>(f32[j]) * kStep - reference.out[j]),
                  reference.f32_bound[j])
            << shape.hidden_size << " x " << shape.unit_width << " element " << j;
      }
    }
  }
}

TEST(RvqTablesTest, ScalarTablesAreTheIntegerProductsOfEntriesAndActivations) {
  const LayerCodebooks books = RandomBooks(4);
  const std::vector<float> x = RandomRow(20, 5);
  const Prepared prepared(RvqKernelsScalar(ExpertArithmetic::kExact), books, x);
  std::vector<int32_t> q(24, 0);  // 20, and zeros to the end of the third position
  EXPECT_EQ(prepared.row.scale, QuantizeActivations(x, kExactPlanes, std::span(q).first(20)));
  for (size_t p = 0; p < 3; ++p) {
    for (size_t entry = 0; entry < 256; ++entry) {
      int64_t gate = 0;
      int64_t up = 0;
      for (size_t d = 0; d < 8; ++d) {
        gate += int64_t{books.gate.values[entry * 8 + d]} * q[8 * p + d];
        up += int64_t{books.up.values[entry * 8 + d]} * q[8 * p + d];
      }
      ASSERT_EQ(prepared.row.gate_table[p * 256 + entry], gate);
      ASSERT_EQ(prepared.row.up_table[p * 256 + entry], up);
    }
  }
}

// The largest sums there are: every entry 127 and every activation full, over K2's width.
TEST_P(ExpertApplyTest, TheLargestSumsDoNotOverflow) {
  constexpr Shape kShape = {7168, 128};
  LayerCodebooks books;
  for (RvqCodebook* book : {&books.gate, &books.up, &books.down}) {
    book->values.fill(127);
  }
  Unit unit = RandomUnit(kShape, books, 6);
  const uint16_t scale = FloatToHalf(0x1p-20F);
  for (auto* scales : {&unit.gate_scales, &unit.up_scales, &unit.down_scales}) {
    std::fill(scales->begin(), scales->end(), scale);
  }
  const std::vector<float> x(7168, 1.0F);
  std::vector<int64_t> out = Zeros(kShape);
  ASSERT_TRUE(ApplyRvq(unit, books, x, 1.0, out));
  // All activations are the largest, so only their rounding to float is seen, and in fast arithmetic that of table
  // values, all the same, to 15 bits and a sign.
  const double error = GetParam() == ExpertArithmetic::kExact ? 1e-7 : 0x1p-14;
  const double gate = 7168 * 508 * 0x1p-20;  // 3.47
  const double expected = 128 * 508 * 0x1p-20 * gate * gate / (1 + std::exp(-gate));
  for (const int64_t value : out) {
    ASSERT_NEAR(static_cast<double>(value) * kStep, expected, expected * error);
  }
  std::fill(books.gate.values.begin(), books.gate.values.end(), -127);
  std::vector<int64_t> negative = Zeros(kShape);
  ASSERT_TRUE(ApplyRvq(unit, books, x, 1.0, negative));
  const double silu = -gate / (1 + std::exp(gate));
  const double other = 128 * 508 * 0x1p-20 * gate * silu;
  ASSERT_NEAR(static_cast<double>(negative[0]) * kStep, other, std::fabs(other) * error);
}

// I1: an expert's units may be computed anywhere, in any ranges, in any order.
TEST_P(ExpertApplyTest, SplittingTheUnitsChangesNoBit) {
  constexpr Shape kShape = {65, 16};
  constexpr uint32_t kUnits = 6;
  const LayerCodebooks books = RandomBooks(7);
  std::vector<Unit> units;
  for (uint32_t u = 0; u < kUnits; ++u) {
    units.push_back(RandomUnit(kShape, books, 100 + u));
  }
  const std::vector<float> x = RandomRow(kShape.hidden_size, 8);
  for (const bool rvq : {true, false}) {
    const auto apply = [&](uint32_t unit, std::vector<int64_t>& out) {
      ASSERT_TRUE(rvq ? ApplyRvq(units[unit], books, x, 0.7, out)
                      : ApplyF32(units[unit], x, 0.7, out));
    };
    std::vector<int64_t> whole = Zeros(kShape);
    for (uint32_t u = 0; u < kUnits; ++u) {
      apply(u, whole);
    }
    // Bit u of `cuts`: a range ends behind unit u. Each range has its own sum, as on a node.
    for (uint32_t cuts = 0; cuts < 1U << (kUnits - 1); ++cuts) {
      std::vector<std::vector<int64_t>> ranges = {Zeros(kShape)};
      for (uint32_t u = 0; u < kUnits; ++u) {
        apply(u, ranges.back());
        if ((cuts >> u & 1) != 0 && u + 1 < kUnits) {
          ranges.push_back(Zeros(kShape));
        }
      }
      std::vector<int64_t> sum = Zeros(kShape);
      for (size_t r = ranges.size(); r-- > 0;) {  // replies arrive last first
        for (size_t j = 0; j < sum.size(); ++j) {
          sum[j] += ranges[r][j];
        }
      }
      ASSERT_EQ(sum, whole) << "cuts " << cuts;
    }
  }
}

TEST_P(ExpertApplyTest, AddsToWhatIsThere) {
  constexpr Shape kShape = {20, 8};
  const LayerCodebooks books = RandomBooks(9);
  const Unit unit = RandomUnit(kShape, books, 10);
  const std::vector<float> x = RandomRow(20, 11);
  std::vector<int64_t> from_zero = Zeros(kShape);
  std::vector<int64_t> from_seven(20, 7);
  ASSERT_TRUE(ApplyRvq(unit, books, x, 1.0, from_zero));
  ASSERT_TRUE(ApplyRvq(unit, books, x, 1.0, from_seven));
  for (size_t j = 0; j < 20; ++j) {
    EXPECT_EQ(from_seven[j], from_zero[j] + 7);
  }
}

TEST_P(ExpertApplyTest, ARowOfZerosAndAWeightOfZeroGiveZero) {
  constexpr Shape kShape = {20, 8};
  const LayerCodebooks books = RandomBooks(12);
  const Unit unit = RandomUnit(kShape, books, 13);
  std::vector<int64_t> out = Zeros(kShape);
  EXPECT_TRUE(ApplyRvq(unit, books, std::vector<float>(20, 0.0F), 1.0, out));
  EXPECT_TRUE(ApplyF32(unit, std::vector<float>(20, 0.0F), 1.0, out));
  EXPECT_TRUE(ApplyRvq(unit, books, RandomRow(20, 14), 0.0, out));
  EXPECT_TRUE(ApplyF32(unit, RandomRow(20, 14), 0.0, out));
  EXPECT_EQ(out, Zeros(kShape));
}

// The last unit of an expert is padded with rows and columns of scale zero.
TEST_P(ExpertApplyTest, PaddingWithScaleZeroContributesNothing) {
  constexpr Shape kShape = {64, 16};
  const LayerCodebooks books = RandomBooks(15);
  Unit unit = RandomUnit(kShape, books, 16);
  const std::vector<float> x = RandomRow(64, 17);
  // Codes stay, scales go: rows 8..15 of gate and up.
  std::fill(unit.gate_scales.begin() + 8, unit.gate_scales.end(), 0);
  std::fill(unit.up_scales.begin() + 8, unit.up_scales.end(), 0);
  std::fill(unit.gate.begin() + 8 * 64, unit.gate.end(), 0.0F);
  std::fill(unit.up.begin() + 8 * 64, unit.up.end(), 0.0F);
  std::vector<int64_t> padded = Zeros(kShape);
  ASSERT_TRUE(ApplyRvq(unit, books, x, 1.0, padded));
  // The same unit without them: 8 wide, the first position of down.
  Unit narrow = unit;
  narrow.shape = {64, 8};
  narrow.gate_scales.resize(8);
  narrow.up_scales.resize(8);
  narrow.down_planes.resize(3 * 64);
  narrow.gate_up_planes.clear();
  for (size_t plane = 0; plane < 8 * 6; ++plane) {
    narrow.gate_up_planes.insert(
        narrow.gate_up_planes.end(), unit.gate_up_planes.begin() + static_cast<int64_t>(plane) * 16,
        unit.gate_up_planes.begin() + static_cast<int64_t>(plane) * 16 + 8);
  }
  std::vector<int64_t> alone = Zeros(kShape);
  ASSERT_TRUE(ApplyRvq(narrow, books, x, 1.0, alone));
  EXPECT_EQ(padded, alone);
}

TEST_P(ExpertApplyTest, TermsThatAreNotFiniteOrOutOfRangeAreReported) {
  constexpr Shape kShape = {20, 8};
  const LayerCodebooks books = RandomBooks(18);
  const Unit unit = RandomUnit(kShape, books, 19);
  const std::vector<float> x = RandomRow(20, 20);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<int64_t> out = Zeros(kShape);
  for (const float bad : {std::nanf(""), kInf, -kInf, 1e38F}) {
    std::vector<float> row = x;
    row[13] = bad;
    EXPECT_FALSE(ApplyRvq(unit, books, row, 1.0, out)) << bad;
    EXPECT_FALSE(ApplyF32(unit, row, 1.0, out)) << bad;
  }
  for (const double bad : {std::nan(""), double{kInf}, 1e9}) {
    EXPECT_FALSE(ApplyRvq(unit, books, x, bad, out)) << bad;
    EXPECT_FALSE(ApplyF32(unit, x, bad, out)) << bad;
  }
  // An activation that overflows float, although gate and up do not.
  Unit large = unit;
  std::fill(large.gate_scales.begin(), large.gate_scales.end(), FloatToHalf(60000.0F));
  std::fill(large.up_scales.begin(), large.up_scales.end(), FloatToHalf(60000.0F));
  std::vector<float> row = x;
  for (float& value : row) {
    value *= 1e15F;
  }
  EXPECT_FALSE(ApplyRvq(large, books, row, 1.0, out));
  // A scale in the file that is not a number, or infinite.
  for (const uint16_t half : {uint16_t{0x7E00}, uint16_t{0x7C00}}) {
    for (auto scales : {&Unit::gate_scales, &Unit::up_scales, &Unit::down_scales}) {
      Unit bad = unit;
      (bad.*scales)[3] = half;
      EXPECT_FALSE(ApplyRvq(bad, books, x, 1.0, out)) << half;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Both, ExpertApplyTest,
                         ::testing::Values(ExpertArithmetic::kExact, ExpertArithmetic::kFast),
                         [](const auto& info) {
                           return std::string(ExpertArithmeticName(info.param));
                         });

}  // namespace
}  // namespace shoal

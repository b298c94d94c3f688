#include "kernels/matvec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/math.h"

namespace shoal {
namespace {

// A matrix with its own storage.
struct OwnedMatrix {
  Matrix view;
  std::vector<std::byte> values;
  std::vector<uint16_t> scales;
};

OwnedMatrix MakeMatrix(TrunkType type, int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  OwnedMatrix m;
  m.values.resize(static_cast<size_t>(rows * RowValueBytes(type, cols)));
  m.scales.resize(static_cast<size_t>(rows * ScalesPerRow(type, cols)));
  for (int64_t i = 0; i < rows; ++i) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (float& value : row) {
      value = normal(random);
    }
    std::byte* out = m.values.data() + i * RowValueBytes(type, cols);
    if (type == TrunkType::kF32) {
      std::memcpy(out, row.data(), row.size() * sizeof(float));
    } else if (type == TrunkType::kBF16) {
      for (size_t j = 0; j < row.size(); ++j) {
        const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(row[j]) >> 16);
        std::memcpy(out + 2 * j, &bits, 2);
      }
    } else {
      const auto groups = static_cast<size_t>(ScalesPerRow(type, cols));
      QuantizeWeightRow(type, row, {out, static_cast<size_t>(RowValueBytes(type, cols))},
                        std::span(m.scales).subspan(static_cast<size_t>(i) * groups, groups));
    }
  }
  m.view = {type, rows, cols, m.values.data(), m.scales.data()};
  return m;
}

std::vector<float> RandomRows(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * cols));
  for (float& value : x) {
    value = normal(random);
  }
  return x;
}

std::vector<float> Multiply(const Matrix& w, const std::vector<float>& x, int64_t num_x) {
  std::vector<std::byte> storage(static_cast<size_t>(num_x * TrunkRowBytes(w.cols)) + 64);
  std::vector<TrunkRow> rows;
  for (int64_t r = 0; r < num_x; ++r) {
    rows.push_back(QuantizeTrunkRow(
        std::span(x).subspan(static_cast<size_t>(r * w.cols), static_cast<size_t>(w.cols)),
        std::span(storage).subspan(static_cast<size_t>(r * TrunkRowBytes(w.cols)))));
  }
  std::vector<float> out(static_cast<size_t>(num_x * w.rows), -1.0F);
  MatMul(w, {num_x, x.data(), rows.data()}, 0, w.rows, out.data(), w.rows);
  return out;
}

constexpr TrunkType kAllTypes[] = {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8,
                                   TrunkType::kQ4};
constexpr int64_t kWidths[] = {1, 7, 16, 64, 127, 128, 129, 192, 2304};

class MatVecTest : public ::testing::TestWithParam<TrunkType> {};

TEST_P(MatVecTest, EqualsTheDoubleProductOfTheDequantizedMatrix) {
  for (const int64_t cols : kWidths) {
    const OwnedMatrix w = MakeMatrix(GetParam(), 5, cols, 1);
    const std::vector<float> x = RandomRows(1, cols, 2);
    const std::vector<float> out = Multiply(w.view, x, 1);
    for (int64_t i = 0; i < w.view.rows; ++i) {
      std::vector<float> row(static_cast<size_t>(cols));
      DequantizeRow(w.view, i, row);
      double sum = 0;
      double magnitude = 0;
      for (size_t j = 0; j < row.size(); ++j) {
        sum += double{row[j]} * double{x[j]};
        magnitude += std::fabs(double{row[j]} * double{x[j]});
      }
      // One rounding to float, 2^-28 of a group's largest activation, and the rounding of
      // dequantized weights to float.
      EXPECT_NEAR(out[static_cast<size_t>(i)], sum, 1.2e-7 * (std::fabs(sum) + magnitude))
          << "cols " << cols << " row " << i;
    }
  }
}

TEST_P(MatVecTest, ManyRowsHaveTheBitsOfOneRowAtATime) {
  for (const int64_t cols : kWidths) {
    const OwnedMatrix w = MakeMatrix(GetParam(), 6, cols, 3);
    constexpr int64_t kNumX = 37;  // more than two blocks
    const std::vector<float> x = RandomRows(kNumX, cols, 4);
    const std::vector<float> all = Multiply(w.view, x, kNumX);
    for (int64_t r = 0; r < kNumX; ++r) {
      const std::vector<float> one(x.begin() + r * cols, x.begin() + (r + 1) * cols);
      const std::vector<float> alone = Multiply(w.view, one, 1);
      EXPECT_EQ(std::memcmp(alone.data(), all.data() + r * w.view.rows, alone.size() * 4), 0)
          << "cols " << cols << " row " << r;
    }
  }
}

TEST_P(MatVecTest, AnActivationThatIsNotFinitePoisonsOnlyItsOwnRow) {
  const OwnedMatrix w = MakeMatrix(GetParam(), 4, 200, 5);
  std::vector<float> x = RandomRows(2, 200, 6);
  const std::vector<float> clean = Multiply(w.view, x, 2);
  x[3] = std::numeric_limits<float>::infinity();
  const std::vector<float> out = Multiply(w.view, x, 2);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_FALSE(std::isfinite(out[i]));
    EXPECT_EQ(out[4 + i], clean[4 + i]);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, MatVecTest, ::testing::ValuesIn(kAllTypes));

TEST(TrunkRowTest, QuantizationErrorIsBelowTwoToTheMinus27OfTheGroupMaximum) {
  const std::vector<float> x = RandomRows(1, 300, 7);
  std::vector<std::byte> storage(static_cast<size_t>(TrunkRowBytes(300)));
  const TrunkRow row = QuantizeTrunkRow(x, storage);
  for (size_t i = 0; i < x.size(); ++i) {
    float largest = 0;
    const size_t group = i / 128;
    for (size_t j = group * 128; j < std::min<size_t>(300, group * 128 + 128); ++j) {
      largest = std::max(largest, std::fabs(x[j]));
    }
    const double q = row.high[i] * 16384.0 + row.low[i];
    EXPECT_LE(std::fabs(q * row.scales[group] - double{x[i]}), std::ldexp(largest, -27)) << i;
    EXPECT_LE(std::abs(int{row.low[i]}), 8192);
    EXPECT_LE(std::abs(int{row.high[i]}), 8192);
  }
  for (size_t i = 300; i < 384; ++i) {
    EXPECT_EQ(row.high[i], 0);
    EXPECT_EQ(row.low[i], 0);
  }
}

TEST(TrunkRowTest, ZerosAndDenormalsKeepTheirValues) {
  std::vector<float> x(128, 0.0F);
  std::vector<std::byte> storage(static_cast<size_t>(TrunkRowBytes(128)));
  EXPECT_EQ(QuantizeTrunkRow(x, storage).scales[0], 0.0);
  x[5] = std::numeric_limits<float>::denorm_min();
  x[6] = -3 * std::numeric_limits<float>::denorm_min();
  const TrunkRow row = QuantizeTrunkRow(x, storage);
  EXPECT_EQ((row.high[5] * 16384.0 + row.low[5]) * row.scales[0], double{x[5]});
  EXPECT_EQ((row.high[6] * 16384.0 + row.low[6]) * row.scales[0], double{x[6]});
}

TEST(WeightQuantTest, ErrorIsWithinHalfAStepOfEightBits) {
  const OwnedMatrix w = MakeMatrix(TrunkType::kQ8, 1, 128, 8);
  const std::vector<float> row = RandomRows(1, 128, 8);  // the same draws
  std::vector<float> decoded(128);
  DequantizeRow(w.view, 0, decoded);
  float largest = 0;
  for (const float value : row) {
    largest = std::max(largest, std::fabs(value));
  }
  const float step = largest / 127;
  for (size_t i = 0; i < 128; ++i) {
    // 2^-11 of the value more, because the scale itself is rounded to float16.
    EXPECT_LE(std::fabs(decoded[i] - row[i]), 0.5F * step + std::fabs(row[i]) / 2048) << i;
  }
}

TEST(WeightQuantTest, FourBitsStayWithinTheErrorOfUniformQuantization) {
  const OwnedMatrix w = MakeMatrix(TrunkType::kQ4, 1, 1280, 9);
  const std::vector<float> row = RandomRows(1, 1280, 9);
  std::vector<float> decoded(1280);
  DequantizeRow(w.view, 0, decoded);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    error += std::pow(double{decoded[i]} - double{row[i]}, 2);
    norm += std::pow(double{row[i]}, 2);
  }
  // A step of about 2.9 / 7.5 gives 0.385^2 / 12 = 0.0124 of a unit variance.
  EXPECT_LE(error / norm, 0.0125);
}

TEST(WeightQuantTest, ZeroAndTinyGroupsBecomeZeros) {
  for (const TrunkType type : {TrunkType::kQ8, TrunkType::kQ4}) {
    for (const float value : {0.0F, 1e-30F, -1e-30F}) {
      const std::vector<float> row(130, value);
      std::vector<std::byte> values(static_cast<size_t>(RowValueBytes(type, 130)));
      std::vector<uint16_t> scales(2);
      QuantizeWeightRow(type, row, values, scales);
      std::vector<float> decoded(130, 1.0F);
      DequantizeRow({type, 1, 130, values.data(), scales.data()}, 0, decoded);
      for (const float x : decoded) {
        EXPECT_EQ(x, 0.0F);
      }
    }
  }
}

// Not clipped to what float16 can scale: the error of such a row is not finite, so that the
// converter refuses it.
TEST(WeightQuantTest, AWeightTooLargeForTheScaleMakesTheRowInfinite) {
  for (const TrunkType type : {TrunkType::kQ8, TrunkType::kQ4}) {
    for (const float value : {1e7F, -1e15F, 3e38F, std::numeric_limits<float>::infinity()}) {
      std::vector<float> row(130, 0.5F);
      row[3] = value;
      std::vector<std::byte> values(static_cast<size_t>(RowValueBytes(type, 130)));
      std::vector<uint16_t> scales(2);
      QuantizeWeightRow(type, row, values, scales);
      EXPECT_TRUE(std::isinf(HalfToFloat(scales[0]))) << value;
      std::vector<float> decoded(130);
      DequantizeRow({type, 1, 130, values.data(), scales.data()}, 0, decoded);
      EXPECT_FALSE(std::isfinite(decoded[3])) << value;
      EXPECT_NEAR(decoded[129], 0.5F, 1e-3F);
    }
  }
}

TEST(WeightQuantTest, TheLargestScaleOfFloat16IsStillUsed) {
  const std::vector<float> row = {65504.0F * 127, -65504.0F, 0.0F};
  std::vector<std::byte> values(3);
  std::vector<uint16_t> scales(1);
  QuantizeWeightRow(TrunkType::kQ8, row, values, scales);
  std::vector<float> decoded(3);
  DequantizeRow({TrunkType::kQ8, 1, 3, values.data(), scales.data()}, 0, decoded);
  EXPECT_EQ(decoded, row);
}

}  // namespace
}  // namespace shoal

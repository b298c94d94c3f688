// The products of every instruction set that this CPU can play, against the scalar ones, bit for bit.
#include "kernels/matvec_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <hwy/highway.h>

#include "kernels/math.h"

namespace shoal {
namespace {

constexpr TrunkType kAllTypes[] = {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8,
                                   TrunkType::kQ4};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Storage that ends where the last element does, so that a sanitizer sees what reads behind it.
struct Product {
  Matrix w;
  int64_t num_x = 0;
  std::vector<uint8_t> values;
  std::vector<uint16_t> scales;
  std::vector<float> x;

  template <typename T>
  T* values_as() {
    return reinterpret_cast<T*>(values.data());
  }
};

Product MakeProduct(TrunkType type, int64_t rows, int64_t cols, int64_t num_x,
                    std::mt19937& random) {
  Product p;
  std::normal_distribution<float> normal;
  p.num_x = num_x;
  p.values.resize(static_cast<size_t>(rows * RowValueBytes(type, cols)));
  p.scales.resize(static_cast<size_t>(rows * ScalesPerRow(type, cols)));
  p.x.resize(static_cast<size_t>(num_x * cols));
  for (uint8_t& byte : p.values) {
    byte = static_cast<uint8_t>(random());
  }
  for (int64_t i = 0; i < rows * cols; ++i) {
    if (type == TrunkType::kF32) {
      p.values_as<float>()[i] = normal(random);
    } else if (type == TrunkType::kBF16) {
      p.values_as<uint16_t>()[i] =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
    }
  }
  for (uint16_t& scale : p.scales) {
    scale = FloatToHalf(0.01F * normal(random));
  }
  for (float& value : p.x) {
    value = normal(random);
  }
  p.w = {type, rows, cols, p.values.data(), p.scales.data()};
  return p;
}

using MatMulFunction = void (*)(const Matrix&, const MatMulInput&, int64_t, int64_t, float*,
                                int64_t);

constexpr float kUntouched = -77;

// Rows [begin, end) of the product; the rest of the result is kUntouched.
std::vector<float> ProductOf(MatMulFunction mat_mul, const Product& p, int64_t begin, int64_t end) {
  const int64_t row_bytes = TrunkRowBytes(p.w.cols);
  std::vector<std::byte> storage(static_cast<size_t>(p.num_x * row_bytes));
  std::vector<TrunkRow> rows;
  for (int64_t r = 0; r < p.num_x; ++r) {
    rows.push_back(QuantizeTrunkRow(
        std::span(p.x).subspan(static_cast<size_t>(r * p.w.cols), static_cast<size_t>(p.w.cols)),
        std::span(storage).subspan(static_cast<size_t>(r * row_bytes),
                                   static_cast<size_t>(row_bytes))));
  }
  const int64_t stride = p.w.rows + 3;
  std::vector<float> out(static_cast<size_t>(p.num_x * stride), kUntouched);
  mat_mul(p.w, {p.num_x, p.x.data(), rows.data()}, begin, end, out.data(), stride);
  return out;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]);
    if (!same && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      return false;
    }
  }
  return a.size() == b.size();
}

std::string Describe(const Product& p, int64_t target) {
  return std::string(hwy::TargetName(target)) + ", type " +
         std::to_string(static_cast<int>(p.w.type)) + ", " + std::to_string(p.w.rows) + " x " +
         std::to_string(p.w.cols) + ", " + std::to_string(p.num_x) + " rows";
}

void ExpectScalarBits(const Product& p, int64_t begin, int64_t end) {
  const std::vector<float> expected = ProductOf(ScalarMatMul, p, begin, end);
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    EXPECT_TRUE(SameBits(ProductOf(MatMul, p, begin, end), expected)) << Describe(p, target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

void ExpectScalarBits(const Product& p) { ExpectScalarBits(p, 0, p.w.rows); }

class MatVecKernelsTest : public ::testing::TestWithParam<TrunkType> {
 protected:
  std::mt19937 random_{1};
};

TEST_P(MatVecKernelsTest, EveryWidthHasTheBitsOfTheScalarProduct) {
  for (const int64_t cols :
       {1, 2, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 191, 192, 255, 256, 300, 2304}) {
    for (const int64_t num_x : {1, 2, 5}) {
      ExpectScalarBits(MakeProduct(GetParam(), 9, cols, num_x, random_));
    }
  }
}

TEST_P(MatVecKernelsTest, EveryNumberOfRowsHasTheBitsOfTheScalarProduct) {
  for (int64_t rows = 1; rows <= 17; ++rows) {
    for (const int64_t num_x : {0, 1, 2, 3, 4, 5, 15, 16, 17, 18, 33}) {
      ExpectScalarBits(MakeProduct(GetParam(), rows, 150, num_x, random_));
    }
  }
}

TEST_P(MatVecKernelsTest, RandomShapesAndPartsHaveTheBitsOfTheScalarProduct) {
  for (int round = 0; round < 60; ++round) {
    const auto rows = 1 + static_cast<int64_t>(random_() % 40);
    const auto cols = 1 + static_cast<int64_t>(random_() % 900);
    const auto begin = static_cast<int64_t>(random_() % static_cast<uint32_t>(rows));
    const auto end =
        begin + static_cast<int64_t>(random_() % static_cast<uint32_t>(rows - begin + 1));
    ExpectScalarBits(
        MakeProduct(GetParam(), rows, cols, static_cast<int64_t>(random_() % 20), random_), begin,
        end);
  }
}

TEST_P(MatVecKernelsTest, AnyBitsOfWeightsAndScalesHaveADefinedResult) {
  for (int round = 0; round < 20; ++round) {
    Product p = MakeProduct(GetParam(), 12, 400, 1 + round % 3, random_);
    for (uint8_t& byte : p.values) {
      byte = static_cast<uint8_t>(random_());
    }
    for (uint16_t& scale : p.scales) {
      scale = static_cast<uint16_t>(random_());
    }
    ExpectScalarBits(p);
  }
}

TEST_P(MatVecKernelsTest, ActivationsThatAreNotFiniteOrTinyHaveADefinedResult) {
  const float specials[] = {0.0F,      -0.0F,      kInfinity, -kInfinity, kNan,
                            kDenormal, -kDenormal, 1e-38F,    3e38F,      -3e38F};
  for (const float special : specials) {
    for (const int64_t num_x : {1, 3}) {
      Product p = MakeProduct(GetParam(), 10, 300, num_x, random_);
      for (int i = 0; i < 4; ++i) {
        p.x[random_() % p.x.size()] = special;
      }
      ExpectScalarBits(p);
      p.x.assign(p.x.size(), special);
      ExpectScalarBits(p);
    }
  }
}

TEST_P(MatVecKernelsTest, AnInfiniteOrMissingWeightSpoilsOnlyItsOwnRow) {
  for (const bool infinite : {true, false}) {
    for (const int64_t num_x : {1, 4}) {
      Product p = MakeProduct(GetParam(), 20, 260, num_x, random_);
      const std::vector<float> clean = ProductOf(MatMul, p, 0, p.w.rows);
      const float special = infinite ? kInfinity : kNan;
      if (GetParam() == TrunkType::kF32) {
        p.values_as<float>()[13 * 260 + 259] = special;
      } else if (GetParam() == TrunkType::kBF16) {
        p.values_as<uint16_t>()[13 * 260 + 259] =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(special) >> 16);
      } else {
        p.scales[13 * 3 + 2] = FloatToHalf(special);
      }
      ExpectScalarBits(p);
      std::vector<float> out = ProductOf(MatMul, p, 0, p.w.rows);
      for (size_t r = 0; r < static_cast<size_t>(num_x); ++r) {
        float& spoiled = out[r * 23 + 13];
        EXPECT_FALSE(std::isfinite(spoiled));
        spoiled = clean[r * 23 + 13];
      }
      EXPECT_TRUE(SameBits(out, clean));
    }
  }
}

// What is left of a sum that cancels is its roundings, which another order would not have: rows whose second half is the
// first with the other sign, in other lanes or other groups.
TEST_P(MatVecKernelsTest, SumsThatCancelKeepTheirOrder) {
  constexpr int64_t kHalf = 7 * kTrunkGroup + 5;
  int not_zero = 0;
  for (const int64_t num_x : {1, 4}) {
    const bool quantized = GetParam() == TrunkType::kQ8 || GetParam() == TrunkType::kQ4;
    const int64_t shift = quantized ? 7 * kTrunkGroup : kHalf;
    Product p = MakeProduct(GetParam(), 16, 2 * shift, num_x, random_);
    for (int64_t r = 0; r < num_x; ++r) {
      float* x = p.x.data() + r * 2 * shift;
      int exponent = 0;
      for (int64_t i = 0; i < shift; ++i) {
        exponent = !quantized || i % kTrunkGroup == 0 ? static_cast<int>(random_() % 30) : exponent;
        x[i] = std::ldexp(x[i], exponent);
        x[i + shift] = -x[i];
      }
    }
    const int64_t half_bytes = RowValueBytes(GetParam(), shift);
    for (int64_t i = 0; i < 16; ++i) {
      std::copy_n(p.values.begin() + i * 2 * half_bytes, half_bytes,
                  p.values.begin() + (2 * i + 1) * half_bytes);
      if (quantized) {
        std::copy_n(p.scales.begin() + i * 14, 7, p.scales.begin() + i * 14 + 7);
      }
    }
    ExpectScalarBits(p);
    for (const float value : ProductOf(ScalarMatMul, p, 0, 16)) {
      not_zero += value != 0 && value != kUntouched ? 1 : 0;
    }
  }
  EXPECT_GT(not_zero, 20);
}

// The largest sums that groups can have, and products that leave the range of float but not that of double.
TEST_P(MatVecKernelsTest, ExtremeValuesHaveTheBitsOfTheScalarProduct) {
  for (const int64_t num_x : {1, 2}) {
    for (const uint8_t byte : {0x00, 0x7F, 0x80, 0xFF, 0x0F, 0xF0}) {
      Product p = MakeProduct(GetParam(), 9, 1000, num_x, random_);
      p.values.assign(p.values.size(), byte);
      p.scales.assign(p.scales.size(), byte < 0x80 ? FloatToHalf(65504) : uint16_t{1});
      for (float& value : p.x) {
        value = (random_() % 2 == 0 ? 1.0F : -1.0F) * (byte < 0x80 ? 3.4e38F : 1.2e-38F);
      }
      ExpectScalarBits(p);
      p.x.assign(p.x.size(), 3.4028234e38F);
      ExpectScalarBits(p);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, MatVecKernelsTest, ::testing::ValuesIn(kAllTypes));

}  // namespace
}  // namespace shoal

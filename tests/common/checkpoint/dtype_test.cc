#include "common/checkpoint/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace shoal {
namespace {

// All 65536 bit patterns, little-endian, behind one byte that makes them unaligned.
std::vector<std::byte> AllPatterns() {
  std::vector<std::byte> raw(1);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    raw.push_back(static_cast<std::byte>(bits & 0xff));
    raw.push_back(static_cast<std::byte>(bits >> 8));
  }
  return raw;
}

// IEEE 754 binary16 by its definition: 1 sign, 5 exponent (bias 15) and 10 fraction bits.
double HalfByDefinition(uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10 & 0x1f);
  const int fraction = static_cast<int>(bits & 0x3ff);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  if (exponent == 0) {
    return sign * std::ldexp(fraction, -24);
  }
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(DTypeTest, EveryHalfWidensToItsValueByDefinition) {
  const std::vector<std::byte> raw = AllPatterns();
  std::vector<float> out(0x10000);
  WidenToFloat(DType::kF16, std::span(raw).subspan(1), out);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = HalfByDefinition(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[bits])) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(out[bits]), expected) << bits;
      ASSERT_EQ(std::signbit(out[bits]), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(DTypeTest, EveryBfloat16IsTheUpperHalfOfItsFloat) {
  const std::vector<std::byte> raw = AllPatterns();
  std::vector<float> out(0x10000);
  WidenToFloat(DType::kBF16, std::span(raw).subspan(1), out);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    ASSERT_EQ(std::bit_cast<uint32_t>(out[bits]), bits << 16) << bits;
  }
}

TEST(DTypeTest, FloatsAreCopiedToTheBit) {
  const float values[] = {-0.0F, 1.5F, std::numeric_limits<float>::denorm_min(), 3.4e38F};
  std::vector<std::byte> raw(1 + sizeof(values));
  std::memcpy(raw.data() + 1, values, sizeof(values));
  std::vector<float> out(4);
  WidenToFloat(DType::kF32, std::span(raw).subspan(1), out);
  EXPECT_EQ(std::memcmp(out.data(), values, sizeof(values)), 0);
}

TEST(DTypeTest, NothingIsWidenedFromNothing) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    WidenToFloat(dtype, {}, {});
  }
}

TEST(DTypeTest, NamesAreThoseOfSafetensorsAndNoOthersAreKnown) {
  EXPECT_EQ(DTypeFromName("F32"), DType::kF32);
  EXPECT_EQ(DTypeFromName("F16"), DType::kF16);
  EXPECT_EQ(DTypeFromName("BF16"), DType::kBF16);
  for (const char* name : {"", "f32", "F64", "F8_E4M3", "BF16 ", "I8"}) {
    EXPECT_EQ(DTypeFromName(name), std::nullopt) << name;
  }
  EXPECT_EQ(DTypeName(DType::kF32), "F32");
  EXPECT_EQ(DTypeName(DType::kF16), "F16");
  EXPECT_EQ(DTypeName(DType::kBF16), "BF16");
}

TEST(DTypeTest, ElementsHaveFourOrTwoBytes) {
  EXPECT_EQ(DTypeBytes(DType::kF32), 4U);
  EXPECT_EQ(DTypeBytes(DType::kF16), 2U);
  EXPECT_EQ(DTypeBytes(DType::kBF16), 2U);
}

}  // namespace
}  // namespace shoal

#include "common/container/unit_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "common/io/crc32c.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UnitLayoutTest, UnitWidthIsTheLargestPowerOfTwoThatGivesEightUnits) {
  EXPECT_EQ(UnitWidth(1024), 128);  // Kimi-Linear: 8 units
  EXPECT_EQ(UnitWidth(2048), 128);  // K2: 16
  EXPECT_EQ(UnitWidth(3072), 128);  // K3: 24
  EXPECT_EQ(UnitWidth(64), 8);      // the tiny model: 8
  EXPECT_EQ(UnitWidth(897), 128);   // 7 whole units and one of a single column
  EXPECT_EQ(UnitWidth(896), 64);    // 7 of 128 are too few, 14 of 64
  EXPECT_EQ(UnitWidth(449), 64);
  EXPECT_EQ(UnitWidth(448), 32);
  EXPECT_EQ(UnitWidth(128), 16);
  EXPECT_EQ(UnitWidth(112), 8);
  EXPECT_EQ(UnitWidth(1), 8);  // never narrower, however few units that gives
}

TEST(UnitLayoutTest, SizesOfKimiLinearAreThoseOfTheFormat) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout layout,
                             UnitLayout::Make(ExpertCodec::kRvq3, 2304, 1024));
  EXPECT_EQ(layout.unit_width, 128);
  EXPECT_EQ(layout.num_units, 8);
  EXPECT_EQ(layout.input_positions, 288);  // 2304 / 8
  EXPECT_EQ(layout.unit_positions, 16);    // 128 / 8
  EXPECT_EQ(layout.scales_offset, 32U);
  // 32 + 2 * (128 + 128 + 2304) = 5152, in whole sections of 64.
  EXPECT_EQ(layout.gate_up_offset, 5184U);
  // + 288 positions of 6 planes of 128 bytes.
  EXPECT_EQ(layout.down_offset, 5184U + 221184U);
  // + 16 positions of 3 planes of 2304 bytes; that is 5265 sections.
  EXPECT_EQ(layout.unit_bytes, 336960U);
  // 8 units are 2,695,680 bytes, 658.1 pages.
  EXPECT_EQ(layout.record_bytes, 659U * 4096U);
}

TEST(UnitLayoutTest, SizesOfTheTinyModelAreThoseOfTheFormat) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout layout,
                             UnitLayout::Make(ExpertCodec::kRvq3, 192, 64));
  EXPECT_EQ(layout.unit_width, 8);
  EXPECT_EQ(layout.num_units, 8);
  EXPECT_EQ(layout.input_positions, 24);
  EXPECT_EQ(layout.unit_positions, 1);
  EXPECT_EQ(layout.gate_up_offset, 448U);       // 32 + 2 * (8 + 8 + 192) = 448, nothing to pad
  EXPECT_EQ(layout.down_offset, 448U + 1152U);  // 24 * 6 * 8
  EXPECT_EQ(layout.unit_bytes, 2176U);          // + 3 * 192, 34 sections
  EXPECT_EQ(layout.record_bytes, 20480U);       // 17408 in whole pages
}

TEST(UnitLayoutTest, WidthsThatDivideNothingArePadded) {
  // 70 columns are 9 units of 8, the last two thirds empty; 20 inputs are 2.5 positions.
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout rvq, UnitLayout::Make(ExpertCodec::kRvq3, 20, 70));
  EXPECT_EQ(rvq.num_units, 9);
  EXPECT_EQ(rvq.input_positions, 3);
  EXPECT_EQ(rvq.gate_up_offset, 128U);      // 32 + 2 * (8 + 8 + 20) = 104
  EXPECT_EQ(rvq.down_offset, 128U + 144U);  // 3 * 6 * 8
  EXPECT_EQ(rvq.unit_bytes, 384U);          // 272 + 3 * 20 = 332
  EXPECT_EQ(rvq.record_bytes, 4096U);       // 9 * 384 = 3456

  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout f32, UnitLayout::Make(ExpertCodec::kF32, 20, 70));
  EXPECT_EQ(f32.gate_up_offset, 64U);       // the header alone, padded
  EXPECT_EQ(f32.down_offset, 64U + 1280U);  // 2 * 8 * 20 * 4
  EXPECT_EQ(f32.unit_bytes, 1984U);         // + 20 * 8 * 4, 31 sections
  EXPECT_EQ(f32.record_bytes, 20480U);      // 9 * 1984 = 17856
}

TEST(UnitLayoutTest, TrellisCodesTakeAsMuchAsResidualVectorsButForWholeBundles) {
  for (const auto& [hidden, intermediate] : {std::pair{2304, 1024}, {7168, 2048}, {192, 64}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout rvq,
                               UnitLayout::Make(ExpertCodec::kRvq3, hidden, intermediate));
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout tcq,
                               UnitLayout::Make(ExpertCodec::kTcq3, hidden, intermediate));
    EXPECT_EQ(tcq.gate_up_offset, rvq.gate_up_offset);
    EXPECT_EQ(tcq.down_offset, rvq.down_offset);
    EXPECT_EQ(tcq.record_bytes, rvq.record_bytes);
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout odd, UnitLayout::Make(ExpertCodec::kTcq3, 20, 70));
  EXPECT_EQ(odd.gate_up_offset, 128U);      // 32 + 2 * (8 + 8 + 20) = 104
  EXPECT_EQ(odd.down_offset, 128U + 192U);  // one bundle of four groups: 3 * 16 * 4
  EXPECT_EQ(odd.unit_bytes, 384U);          // a bundle of one group, 3 * 20 * 1: 380
}

TEST(UnitLayoutTest, IndicesAreThreeBitsAWeight) {
  for (const auto& [hidden, intermediate] : {std::pair{2304, 1024}, {7168, 2048}, {3584, 3072}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout layout,
                               UnitLayout::Make(ExpertCodec::kRvq3, hidden, intermediate));
    const auto weights = static_cast<uint64_t>(3 * hidden) * static_cast<uint64_t>(intermediate);
    const auto units = static_cast<uint64_t>(layout.num_units);
    EXPECT_EQ(units * (layout.unit_bytes - layout.gate_up_offset), weights / 8 * 3);
    // Scales, headers and padding together stay below 2 % of the indices.
    EXPECT_LE(layout.record_bytes, weights / 8 * 3 * 102 / 100);
  }
}

TEST(UnitLayoutTest, RefusesSizesThatCannotBe) {
  constexpr int64_t kLargest = int64_t{1} << 24;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, kLargest + 1, kMax, -kMax - 1}) {
    EXPECT_THAT(UnitLayout::Make(ExpertCodec::kRvq3, bad, 64),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hidden_size")));
    EXPECT_THAT(UnitLayout::Make(ExpertCodec::kF32, 64, bad),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("moe_intermediate_size")));
  }
  // The largest that is accepted: 2^17 units of three 2^24 x 128 matrices of floats.
  SHOAL_ASSERT_OK_AND_ASSIGN(const UnitLayout layout,
                             UnitLayout::Make(ExpertCodec::kF32, kLargest, kLargest));
  EXPECT_EQ(layout.unit_bytes, 64U + (uint64_t{3} << 33));
  EXPECT_EQ(layout.record_bytes, (uint64_t{64} << 17) + (uint64_t{3} << 50));
}

TEST(UnitLayoutTest, CodecNamesAreReadBack) {
  for (const ExpertCodec codec : {ExpertCodec::kRvq3, ExpertCodec::kTcq3, ExpertCodec::kF32}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const ExpertCodec read, ExpertCodecFromName(ExpertCodecName(codec)));
    EXPECT_EQ(read, codec);
  }
  EXPECT_THAT(
      ExpertCodecFromName("tcq4"),
      StatusIs(absl::StatusCode::kUnimplemented, AllOf(HasSubstr("\"tcq4\""), HasSubstr("rvq3"))));
}

// A sealed unit of a small layout, and what it was sealed as.
class UnitSealTest : public ::testing::Test {
 protected:
  static constexpr ExpertKey kKey = {.layer = 3, .expert = 301};
  static constexpr int64_t kUnit = 5;

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(layout_, UnitLayout::Make(ExpertCodec::kRvq3, 20, 64));
    unit_.resize(layout_.unit_bytes);
    for (size_t i = 0; i < unit_.size(); ++i) {
      unit_[i] = static_cast<std::byte>(i * 37);
    }
    SealUnit(layout_, kKey, kUnit, unit_);
  }

  // Field of the header at `offset`, as the format has it: little-endian.
  uint64_t Field(size_t offset, size_t bytes) const {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) {
      value = value << 8 | static_cast<uint64_t>(unit_[offset + i]);
    }
    return value;
  }

  // Makes the checksum fit whatever the unit holds now.
  void FixChecksum() {
    const uint32_t crc = Crc32c(std::span<const std::byte>(unit_).subspan(4));
    std::memcpy(unit_.data(), &crc, sizeof(crc));
  }

  absl::Status Check() const { return CheckUnit(layout_, kKey, kUnit, unit_); }

  UnitLayout layout_;
  std::vector<std::byte> unit_;
};

TEST_F(UnitSealTest, HeaderLiesAsTheFormatSays) {
  EXPECT_EQ(Field(0, 4), Crc32c(std::span<const std::byte>(unit_).subspan(4)));
  EXPECT_EQ(std::memcmp(unit_.data() + 4, "SHLU", 4), 0);
  EXPECT_EQ(Field(8, 4), 3U);
  EXPECT_EQ(Field(12, 4), 301U);
  EXPECT_EQ(Field(16, 4), 5U);
  EXPECT_EQ(Field(20, 4), 0U);
  EXPECT_EQ(Field(24, 8), layout_.unit_bytes);
  for (size_t i = 32; i < unit_.size(); ++i) {
    ASSERT_EQ(unit_[i], static_cast<std::byte>(i * 37)) << "byte " << i << " is not header";
  }
  SHOAL_EXPECT_OK(Check());
}

TEST_F(UnitSealTest, AnyFlippedBitIsNoticed) {
  for (size_t bit = 0; bit < unit_.size() * 8; ++bit) {
    unit_[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    ASSERT_THAT(Check(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("layer 3 expert 301 unit 5"), HasSubstr("checksum"))))
        << "bit " << bit;
    unit_[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  SHOAL_EXPECT_OK(Check());
}

// A header that is wrong although its checksum is right: written by mistake, or by somebody else.
TEST_F(UnitSealTest, AWrongHeaderFieldIsNamed) {
  struct Field {
    size_t offset;
    const char* named;
  };
  for (const Field& field :
       {Field{4, "magic"}, Field{8, "holds layer 2 "}, Field{12, "expert 300 "},
        Field{16, "unit 4 in its place"}, Field{20, "reserved"}, Field{24, "unit size"}}) {
    const std::vector<std::byte> good = unit_;
    unit_[field.offset] ^= std::byte{1};
    FixChecksum();
    EXPECT_THAT(Check(),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("layer 3 expert 301 unit 5"), HasSubstr(field.named))));
    unit_ = good;
  }
}

TEST_F(UnitSealTest, AUnitInAnotherPlaceIsNotTheUnit) {
  EXPECT_THAT(CheckUnit(layout_, {4, 301}, kUnit, unit_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the file holds layer 3")));
  EXPECT_THAT(CheckUnit(layout_, {3, 302}, kUnit, unit_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expert 301")));
  EXPECT_THAT(CheckUnit(layout_, kKey, 6, unit_),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("unit 5 in its place")));
}

TEST_F(UnitSealTest, AShortUnitIsRefused) {
  const std::span<const std::byte> all(unit_);
  for (const size_t size : {size_t{0}, size_t{31}, all.size() - 1}) {
    EXPECT_THAT(CheckUnit(layout_, kKey, kUnit, all.first(size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("bytes where a unit has")));
  }
}

TEST_F(UnitSealTest, ZerosAreNoUnit) {
  std::fill(unit_.begin(), unit_.end(), std::byte{0});
  EXPECT_THAT(Check(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
}

}  // namespace
}  // namespace shoal

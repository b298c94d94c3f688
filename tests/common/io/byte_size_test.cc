#include "common/io/byte_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

uint64_t Parsed(absl::string_view text) {
  const absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
  EXPECT_THAT(bytes, shoal::testing::IsOk()) << text;
  return bytes.value_or(0);
}

TEST(ByteSizeTest, BinaryUnitsArePowersOf1024) {
  EXPECT_EQ(Parsed("3KiB"), 3072U);
  EXPECT_EQ(Parsed("512MiB"), 536870912U);
  EXPECT_EQ(Parsed("8GiB"), 8589934592U);
  EXPECT_EQ(Parsed("2TiB"), 2199023255552U);
}

TEST(ByteSizeTest, DecimalUnitsArePowersOf1000) {
  EXPECT_EQ(Parsed("3kB"), 3000U);
  EXPECT_EQ(Parsed("3KB"), 3000U);
  EXPECT_EQ(Parsed("8GB"), 8000000000U);
  EXPECT_EQ(Parsed("2TB"), 2000000000000U);
}

TEST(ByteSizeTest, PlainNumbersAreBytes) {
  EXPECT_EQ(Parsed("0"), 0U);
  EXPECT_EQ(Parsed("1073741824"), 1073741824U);
  EXPECT_EQ(Parsed("17B"), 17U);
  EXPECT_EQ(Parsed("18446744073709551615"), 18446744073709551615U);
}

TEST(ByteSizeTest, TakesFractionsAndSpaces) {
  EXPECT_EQ(Parsed("1.5GiB"), 1610612736U);
  EXPECT_EQ(Parsed(" 0.25 KiB "), 256U);
  EXPECT_EQ(Parsed("1.0001kB"), 1000U);
}

TEST(ByteSizeTest, RefusesBitsWithBothFixes) {
  EXPECT_THAT(ParseByteSize("8Gb"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("bits"), HasSubstr("8GiB"), HasSubstr("8GB"))));
}

TEST(ByteSizeTest, RefusesUnitsThatCouldMeanSeveralThings) {
  for (const absl::string_view text : {"8G", "8g", "8gb", "8gib", "8GIB", "8Gi"}) {
    EXPECT_THAT(ParseByteSize(text),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("not clear"), HasSubstr("8GiB"), HasSubstr("8GB"))))
        << text;
  }
}

TEST(ByteSizeTest, RefusesWhatIsNoSize) {
  for (const absl::string_view text :
       {"", "GiB", "-1", "-1GiB", "1e9", "1.5", "1.2.3GiB", ".", "0x10", "1,000"}) {
    EXPECT_THAT(ParseByteSize(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("write")))
        << text;
  }
}

TEST(ByteSizeTest, RefusesMoreThan64Bits) {
  EXPECT_THAT(ParseByteSize("16777216TiB"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64 bits")));
  EXPECT_EQ(Parsed("16777215TiB"), uint64_t{16777215} << 40);
}

TEST(ByteSizeTest, FormatsThreeDigitsInTheLargestUnit) {
  EXPECT_EQ(FormatByteSize(0), "0 B");
  EXPECT_EQ(FormatByteSize(1023), "1023 B");
  EXPECT_EQ(FormatByteSize(1024), "1.00 KiB");
  EXPECT_EQ(FormatByteSize(12 * 1024 * 1024 + 314573), "12.3 MiB");
  EXPECT_EQ(FormatByteSize(uint64_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(FormatByteSize(uint64_t{1} << 63), "8.00 EiB");
}

}  // namespace
}  // namespace shoal

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/io/aligned_buffer.h"
#include "common/io/checked_range.h"
#include "common/io/crc32c.h"
#include "common/io/sha256.h"

namespace shoal {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32cTest, ReproducesThePublishedExamples) {
  EXPECT_EQ(Crc32c(BytesOf("123456789")), 0xE3069283U);
  EXPECT_EQ(Crc32c({}), 0U);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8A9136AAU);
  EXPECT_EQ(Crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
}

// FIPS 180-4 examples.
TEST(Sha256Test, ReproducesThePublishedExamples) {
  EXPECT_EQ(ToHex(Sha256::Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(ToHex(Sha256::Of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, PiecesHashLikeTheWhole) {
  Sha256 hash;
  hash.Update("a");
  hash.Update(BytesOf("bc"));
  EXPECT_EQ(hash.Finish(), Sha256::Of("abc"));
}

TEST(Sha256Test, HexadecimalIsReadStrictly) {
  const Sha256Digest digest = Sha256::Of("abc");
  EXPECT_EQ(DigestFromHex(ToHex(digest)), digest);
  EXPECT_FALSE(DigestFromHex(""));
  EXPECT_FALSE(DigestFromHex(std::string(63, 'a')));
  EXPECT_FALSE(DigestFromHex(std::string(64, 'g')));
  EXPECT_FALSE(DigestFromHex(std::string(64, 'A')));
}

TEST(CheckedRangeTest, NoticesEveryOverflow) {
  constexpr uint64_t kMax = ~uint64_t{0};
  EXPECT_EQ(CheckedMul(0, kMax), 0U);
  EXPECT_EQ(CheckedMul(1, kMax), kMax);
  EXPECT_FALSE(CheckedMul(2, kMax));
  EXPECT_FALSE(CheckedMul(uint64_t{1} << 32, uint64_t{1} << 32));
  const uint64_t fits[] = {3, 5, 7};
  EXPECT_EQ(CheckedProduct(fits), 105U);
  EXPECT_EQ(CheckedProduct({}), 1U);
  const uint64_t overflows[] = {uint64_t{1} << 40, uint64_t{1} << 40, 0};
  EXPECT_FALSE(CheckedProduct(overflows));
  EXPECT_TRUE(RangeFits(0, 10, 10));
  EXPECT_TRUE(RangeFits(10, 0, 10));
  EXPECT_FALSE(RangeFits(11, 0, 10));
  EXPECT_FALSE(RangeFits(5, 6, 10));
  EXPECT_FALSE(RangeFits(kMax, 2, 10));
  EXPECT_FALSE(RangeFits(2, kMax, 10));
}

TEST(AlignedBufferTest, IsPageAlignedZeroedAndMovable) {
  auto buffer = AlignedBuffer::Allocate(5000);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % AlignedBuffer::kAlignment, 0U);
  EXPECT_EQ(buffer->bytes()[4999], std::byte{0});
  std::memset(buffer->data(), 1, 5000);
  AlignedBuffer moved = *std::move(buffer);
  EXPECT_EQ(moved.size_bytes(), 5000U);
  EXPECT_EQ(moved.as<uint32_t>().size(), 1250U);
  EXPECT_EQ(moved.as<uint32_t>()[7], 0x01010101U);
}

TEST(AlignedBufferTest, AnImpossibleSizeIsAnError) {
  EXPECT_FALSE(AlignedBuffer::Allocate(uint64_t{1} << 62).ok());
  EXPECT_EQ(AlignedBuffer::Allocate(0)->size_bytes(), 0U);
}

}  // namespace
}  // namespace shoal

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/container/manifest.h"
#include "common/io/sha256.h"

namespace shoal {
namespace {

std::string BytesOf(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// Leaf i of the vectors below: 32 bytes of value i.
std::string Leaves(size_t count) {
  std::string leaves;
  for (size_t i = 0; i < count; ++i) {
    leaves += std::string(32, static_cast<char>(i));
  }
  return leaves;
}

// The definition of RFC 6962, section 2.1, written as plainly as it stands there.
std::string Leaf(const std::string& data) {
  return BytesOf(Sha256::Of(std::string(1, '\0') + data));
}
std::string Node(const std::string& left, const std::string& right) {
  return BytesOf(Sha256::Of(std::string(1, '\1') + left + right));
}
std::string Hex(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex += kDigits[static_cast<uint8_t>(c) >> 4];
    hex += kDigits[static_cast<uint8_t>(c) & 15];
  }
  return hex;
}

TEST(HashTreeTest, AnEmptyTreeIsTheDigestOfNothing) {
  EXPECT_EQ(TreeRoot(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

// From an implementation of RFC 6962 in Python that gives the Certificate Transparency project's
// test roots for its eight example entries.
TEST(HashTreeTest, ReproducesRootsOfAnotherImplementation) {
  const std::pair<size_t, const char*> kRoots[] = {
      {1, "7f9c9e31ac8256ca2f258583df262dbc7d6f68f2a03043d5c99a4ae5a7396ce9"},
      {2, "28fb81e496897e0ce886f08602392e9239b65c659041e5202163e58ad898f444"},
      {3, "ba8d94b7fbcecae7b81c4c80574fe24734a6917bf9c1ecd66ff3e0c34ead4620"},
      {5, "85e20cac1f02fda7bcdb2fc3f908568c57018c77815f1fa361acad13994f08bf"},
      {8, "f907f23f76aa01b755a614d31ef9832909f44638b4590073301e61e6d01f9a1d"},
      {13, "cebcf8c0a77418c03d4694b0e14ccebed8416ff87d3ad4da873423948f8622fd"},
      {64, "cede01bf65030198d62a79b390d7a9e12c200e243e7cee55357dec00eee03abd"},
      {100, "3e9a4e174ad846030b2bbaadcc6f51540fd556b27b8af9a6119af6719b7d425f"},
  };
  for (const auto& [count, root] : kRoots) {
    EXPECT_EQ(TreeRoot(Leaves(count)), root) << count << " leaves";
  }
}

TEST(HashTreeTest, SplitsAtTheLargestPowerOfTwoBelowTheNumberOfLeaves) {
  const auto leaf = [](size_t i) { return Leaf(std::string(32, static_cast<char>(i))); };
  EXPECT_EQ(TreeRoot(Leaves(1)), Hex(leaf(0)));
  EXPECT_EQ(TreeRoot(Leaves(2)), Hex(Node(leaf(0), leaf(1))));
  EXPECT_EQ(TreeRoot(Leaves(3)), Hex(Node(Node(leaf(0), leaf(1)), leaf(2))));
  const std::string four = Node(Node(leaf(0), leaf(1)), Node(leaf(2), leaf(3)));
  EXPECT_EQ(TreeRoot(Leaves(4)), Hex(four));
  EXPECT_EQ(TreeRoot(Leaves(5)), Hex(Node(four, leaf(4))));
  EXPECT_EQ(TreeRoot(Leaves(7)), Hex(Node(four, Node(Node(leaf(4), leaf(5)), leaf(6)))));
}

TEST(HashTreeTest, APieceOfALeafAtTheEndCountsAsALeaf) {
  EXPECT_EQ(TreeRoot("abc"), Hex(Leaf("abc")));
  EXPECT_EQ(TreeRoot(Leaves(1) + "abc"), Hex(Node(Leaf(Leaves(1)), Leaf("abc"))));
  EXPECT_NE(TreeRoot(Leaves(2) + "abc"), TreeRoot(Leaves(2)));
}

TEST(HashTreeTest, EveryLeafAndItsPlaceCount) {
  const std::string leaves = Leaves(6);
  const std::string root = TreeRoot(leaves);
  for (size_t byte = 0; byte < leaves.size(); ++byte) {
    std::string changed = leaves;
    changed[byte] ^= 0x40;
    ASSERT_NE(TreeRoot(changed), root) << "byte " << byte;
  }
  std::string swapped = leaves;
  std::swap_ranges(swapped.begin(), swapped.begin() + 32, swapped.begin() + 32);
  EXPECT_NE(TreeRoot(swapped), root);
  EXPECT_NE(TreeRoot(Leaves(5)), root);
}

}  // namespace
}  // namespace shoal

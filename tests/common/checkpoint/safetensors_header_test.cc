#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct BadHeader {
  std::string name;
  std::string header;
  uint64_t data_bytes;
  absl::StatusCode code;
  std::vector<std::string> words;  // all of them are in the message
};

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedWithANamedReason) {
  const BadHeader& bad = GetParam();
  const auto result = ParseSafetensorsHeader(bad.header, bad.data_bytes, "m/part.safetensors");
  EXPECT_THAT(result, StatusIs(bad.code, HasSubstr("m/part.safetensors")));
  for (const std::string& word : bad.words) {
    EXPECT_THAT(result, StatusIs(bad.code, HasSubstr(word)));
  }
}

// One tensor "w" with the given fields.
std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"w": {"dtype": )", dtype, R"(, "shape": )", shape,
                      R"(, "data_offsets": )", offsets, "}}");
}

// Two tensors of two floats each, with the given offsets.
std::string Two(const std::string& first, const std::string& second) {
  return absl::StrCat(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": )", first,
                      R"(}, "b": {"dtype": "F32", "shape": [2], "data_offsets": )", second, "}}");
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kLoss = absl::StatusCode::kDataLoss;

INSTANTIATE_TEST_SUITE_P(
    All, BadHeaderTest,
    ::testing::Values(
        BadHeader{"NotJson", "{", 0, kInvalid, {"not a JSON object"}},
        BadHeader{"List", "[]", 0, kInvalid, {"not a JSON object"}},
        BadHeader{"TensorTwice",
                  R"({"w": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]},
                      "w": {"dtype": "F32", "shape": [], "data_offsets": [4, 8]}})",
                  8,
                  kInvalid,
                  {"\"w\" appears twice"}},
        BadHeader{
            "FieldTwice",
            R"({"w": {"dtype": "F32", "dtype": "F16", "shape": [2], "data_offsets": [0, 4]}})",
            4,
            kInvalid,
            {"\"dtype\" appears twice"}},
        BadHeader{"DepthBomb", std::string(100'000, '{'), 0, kInvalid, {"not a JSON object"}},
        BadHeader{
            "DepthBombOfLists", "{\"w\": " + std::string(100'000, '['), 0, kInvalid, {"levels"}},
        BadHeader{"TensorIsNoObject", R"({"w": 7})", 0, kInvalid, {"\"w\"", "object"}},
        BadHeader{"NoDType",
                  R"({"w": {"shape": [1], "data_offsets": [0, 4]}})",
                  4,
                  kInvalid,
                  {"\"w\"", "dtype is missing"}},
        BadHeader{"DTypeIsNumber", One("32", "[1]", "[0, 4]"), 4, kInvalid, {"dtype is 32"}},
        BadHeader{"NoShape",
                  R"({"w": {"dtype": "F32", "data_offsets": [0, 4]}})",
                  4,
                  kInvalid,
                  {"\"w\"", "shape is not a list"}},
        BadHeader{"ShapeIsNumber", One("\"F32\"", "1", "[0, 4]"), 4, kInvalid, {"shape"}},
        BadHeader{"NegativeSize", One("\"F32\"", "[-1]", "[0, 4]"), 4, kInvalid, {"shape"}},
        BadHeader{"FractionalSize", One("\"F32\"", "[1.0]", "[0, 4]"), 4, kInvalid, {"shape"}},
        BadHeader{"SizeAbove64Bits",
                  One("\"F32\"", "[18446744073709551616]", "[0, 4]"),
                  4,
                  kInvalid,
                  {"shape"}},
        BadHeader{"NineDimensions",
                  One("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0, 4]"),
                  4,
                  kInvalid,
                  {"at most 8"}},
        BadHeader{"NoOffsets",
                  R"({"w": {"dtype": "F32", "shape": [1]}})",
                  4,
                  kInvalid,
                  {"data_offsets is not a pair"}},
        BadHeader{"OneOffset", One("\"F32\"", "[1]", "[0]"), 4, kInvalid, {"data_offsets"}},
        BadHeader{"ThreeOffsets", One("\"F32\"", "[1]", "[0,4,4]"), 4, kInvalid, {"data_offsets"}},
        BadHeader{"NegativeOffset", One("\"F32\"", "[1]", "[-4,0]"), 4, kInvalid, {"data_offsets"}},
        BadHeader{"ShapeProductOverflows",
                  // 2^32 * 2^32 = 2^64 would wrap to 0 and match the empty range
                  One("\"F32\"", "[4294967296, 4294967296]", "[0, 0]"),
                  0,
                  kInvalid,
                  {"overflows", "[4294967296, 4294967296]"}},
        BadHeader{"ShapeBytesOverflow",
                  // 2^62 floats are 2^64 bytes
                  One("\"F32\"", "[4611686018427387904]", "[0, 0]"),
                  0,
                  kInvalid,
                  {"overflows"}},
        BadHeader{"ShapeOfAnUnknownDTypeOverflows",
                  One("\"F4\"", "[4294967296, 4294967296]", "[0, 0]"),
                  0,
                  kInvalid,
                  {"overflows"}},
        BadHeader{"EndsBeforeItBegins",
                  One("\"F32\"", "[1]", "[8, 4]"),
                  8,
                  kInvalid,
                  {"begin at 8", "at 4"}},
        BadHeader{
            "LeavesTheFile", One("\"F32\"", "[2]", "[0, 8]"), 7, kLoss, {"leave the 7 bytes"}},
        BadHeader{"RangeTooLong",
                  One("\"F32\"", "[1]", "[0, 8]"),
                  8,
                  kInvalid,
                  {"hold 8 bytes", "calls for 4"}},
        BadHeader{"RangeOfAnUnreadDTypeTooShort",
                  One("\"I64\"", "[2]", "[0, 8]"),
                  8,
                  kInvalid,
                  {"hold 8 bytes", "[2] of I64", "calls for 16"}},
        BadHeader{
            "Overlap", Two("[0, 8]", "[4, 12]"), 12, kLoss, {"\"b\"", "inside the one before"}},
        BadHeader{"SameRangeTwice", Two("[0, 8]", "[0, 8]"), 8, kLoss, {"inside the one before"}},
        BadHeader{"Hole", Two("[0, 8]", "[12, 20]"), 20, kLoss, {"\"b\"", "hole after 8"}},
        BadHeader{
            "HoleAtTheBegin", Two("[4, 12]", "[12, 20]"), 20, kLoss, {"\"a\"", "hole after 0"}},
        BadHeader{"BytesAfterTheLastTensor",
                  Two("[0, 8]", "[8, 16]"),
                  17,
                  kLoss,
                  {"end at byte 16 of the 17"}},
        BadHeader{"DataWithoutTensors", "{}", 1, kLoss, {"end at byte 0 of the 1"}}),
    [](const auto& info) { return info.param.name; });

TEST(SafetensorsHeaderTest, RangesMayBeNamedInAnyOrder) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header,
                             ParseSafetensorsHeader(Two("[8, 16]", "[0, 8]"), 16, "f"));
  EXPECT_EQ(header.tensors.at("a").offset_bytes, 8U);
  EXPECT_EQ(header.tensors.at("b").offset_bytes, 0U);
  EXPECT_EQ(header.tensors.at("b").size_bytes, 8U);
  EXPECT_EQ(header.tensors.at("b").num_elements(), 2U);
}

TEST(SafetensorsHeaderTest, ScalarsAndEmptyTensorsHaveTheirSizes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensorsHeader(R"({
      "scalar": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]},
      "empty":  {"dtype": "F16", "shape": [3, 0], "data_offsets": [2, 2]},
      "last":   {"dtype": "F32", "shape": [1, 1], "data_offsets": [2, 6]}})",
                                                                                    6, "f"));
  EXPECT_EQ(header.tensors.at("scalar").num_elements(), 1U);
  EXPECT_EQ(header.tensors.at("scalar").dtype, DType::kBF16);
  EXPECT_EQ(header.tensors.at("empty").num_elements(), 0U);
  EXPECT_EQ(header.tensors.at("last").dtype, DType::kF32);
  EXPECT_EQ(header.tensors.at("last").offset_bytes, 2U);
}

TEST(SafetensorsHeaderTest, MetadataIsNoTensor) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const SafetensorsHeader header,
      ParseSafetensorsHeader(R"({"__metadata__": {"format": "pt"}})", 0, "f"));
  EXPECT_TRUE(header.tensors.empty());
  EXPECT_TRUE(header.unreadable.empty());
}

TEST(SafetensorsHeaderTest, TensorsOfDTypesThatAreNotReadAreKeptApartByName) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensorsHeader(R"({
      "fp8": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
      "fp4": {"dtype": "F4", "shape": [4], "data_offsets": [4, 6]},
      "w":   {"dtype": "F32", "shape": [1], "data_offsets": [6, 10]}})",
                                                                                    10, "f"));
  EXPECT_EQ(header.tensors.size(), 1U);
  EXPECT_EQ(header.unreadable.at("fp8"), "F8_E4M3");
  EXPECT_EQ(header.unreadable.at("fp4"), "F4");
}

TEST(SafetensorsHeaderTest, HostileNamesAreShortenedAndEscapedInMessages) {
  const std::string header = absl::StrCat("{\"\\u001b[2J", std::string(10'000, 'x'), "\": 7}");
  const auto result = ParseSafetensorsHeader(header, 0, "f");
  EXPECT_THAT(result, StatusIs(kInvalid, HasSubstr("\\u001b[2J")));
  EXPECT_LT(result.status().message().size(), 300U);
}

}  // namespace
}  // namespace shoal

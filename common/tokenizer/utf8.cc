#include "common/tokenizer/utf8.h"

namespace shoal {
namespace {

struct Lead {
  size_t length = 0;  // 0: not a lead byte
  int32_t bits = 0;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead Classify(uint8_t byte) {
  if (byte < 0x80) {
    return {1, byte};
  }
  if (byte >= 0xC2 && byte <= 0xDF) {
    return {2, byte & 0x1F};
  }
  if (byte >= 0xE0 && byte <= 0xEF) {
    Lead lead{3, byte & 0x0F};
    lead.second_low = byte == 0xE0 ? 0xA0 : 0x80;   // no overlong forms
    lead.second_high = byte == 0xED ? 0x9F : 0xBF;  // no surrogates
    return lead;
  }
  if (byte >= 0xF0 && byte <= 0xF4) {
    Lead lead{4, byte & 0x07};
    lead.second_low = byte == 0xF0 ? 0x90 : 0x80;
    lead.second_high = byte == 0xF4 ? 0x8F : 0xBF;  // at most U+10FFFF
    return lead;
  }
  return {};
}

}  // namespace

Utf8Step DecodeUtf8(absl::string_view text) {
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) {
    return {Utf8Step::Kind::kInvalid, 0, 1};
  }
  int32_t code_point = lead.bits;
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) {
      return {Utf8Step::Kind::kIncomplete, 0, i};
    }
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) {
      return {Utf8Step::Kind::kInvalid, 0, i};
    }
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8Step::Kind::kCharacter, code_point, lead.length};
}

}  // namespace shoal

#include "common/io/byte_size.h"

#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {
namespace {

struct Unit {
  absl::string_view name;
  uint64_t bytes;
};
constexpr std::array<Unit, 10> kUnits = {{{"B", 1},
                                          {"kB", 1000},
                                          {"KB", 1000},
                                          {"KiB", uint64_t{1} << 10},
                                          {"MB", 1000'000},
                                          {"MiB", uint64_t{1} << 20},
                                          {"GB", 1000'000'000},
                                          {"GiB", uint64_t{1} << 30},
                                          {"TB", 1000'000'000'000},
                                          {"TiB", uint64_t{1} << 40}}};

absl::Status UnitError(absl::string_view text, absl::string_view number, absl::string_view unit) {
  const char prefix = absl::ascii_toupper(static_cast<unsigned char>(unit[0]));
  if (prefix != 'K' && prefix != 'M' && prefix != 'G' && prefix != 'T') {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' has the unknown unit '", unit,
                                                   "'; write for example 512MiB, 8GiB or 8GB"));
  }
  const std::string letter(1, prefix);
  const bool bits = absl::EndsWith(unit, "b") && absl::ascii_isupper(unit[0]);
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' ", bits ? "would be bits" : "is not clear", "; write ", number, letter,
      "iB (powers of 1024) or ", number, prefix == 'K' ? "k" : letter, "B (powers of 1000)"));
}

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t number_length = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const absl::string_view number = trimmed.substr(0, number_length);
  const absl::string_view unit = absl::StripLeadingAsciiWhitespace(trimmed.substr(number_length));
  const size_t point = number.find('.');
  uint64_t whole = 0;
  double fraction = 0;
  if (!absl::SimpleAtoi(number.substr(0, point), &whole) ||
      (point != absl::string_view::npos &&
       (unit.empty() || !absl::SimpleAtod(absl::StrCat("0", number.substr(point)), &fraction)))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a size in bytes; write for example 512MiB, 8GiB, 8GB or 8589934592"));
  }
  uint64_t unit_bytes = unit.empty() ? 1 : 0;
  for (const Unit& known : kUnits) {
    if (unit == known.name) {
      unit_bytes = known.bytes;
    }
  }
  if (unit_bytes == 0) {
    return UnitError(text, number, unit);
  }
  uint64_t bytes = 0;
  const auto part = static_cast<uint64_t>(fraction * static_cast<double>(unit_bytes));
  if (__builtin_mul_overflow(whole, unit_bytes, &bytes) ||
      __builtin_add_overflow(bytes, part, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is more than 64 bits can count (about 16777215 TiB)"));
  }
  return bytes;
}

std::string FormatByteSize(uint64_t bytes) {
  constexpr std::array<absl::string_view, 6> kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) {
    return absl::StrCat(bytes, " B");
  }
  double value = static_cast<double>(bytes) / 1024;
  size_t name = 0;
  while (value >= 1024) {
    value /= 1024;
    ++name;
  }
  const int digits = value < 10 ? 2 : value < 100 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, value, kNames[name]);
}

}  // namespace shoal

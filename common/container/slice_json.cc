#include "common/container/slice_json.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/io/json_fields.h"

namespace shoal {
namespace {

constexpr size_t kMaxNameLength = 63;

// [begin, end) of `field`; an error is recorded in `fields`.
std::pair<int64_t, int64_t> ReadRange(JsonFields& fields, const char* field) {
  const auto is_index = [](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
  };
  const Json& range = fields.Array(field);
  if (range.size() != 2 || !is_index(range[0]) || !is_index(range[1]) || range[0] >= range[1]) {
    fields.Fail(field, "is not [begin, end] with 0 <= begin < end < 2^31");
    return {0, 1};
  }
  return {range[0].get<int64_t>(), range[1].get<int64_t>()};
}

}  // namespace

nlohmann::json SlicesToJson(std::span<const ExpertSlice> slices) {
  nlohmann::json array = nlohmann::json::array();
  for (const ExpertSlice& slice : slices) {
    array.push_back({{"units", {slice.units.begin, slice.units.end}},
                     {"experts", {slice.experts.begin, slice.experts.end}}});
  }
  return array;
}

std::vector<ExpertSlice> ReadSlices(JsonFields& fields, const char* field) {
  std::vector<ExpertSlice> slices;
  const Json& array = fields.Array(field);
  if (array.size() > kMaxSlices) {
    fields.Fail(field, absl::StrCat("has ", array.size(), " entries, more than the ", kMaxSlices,
                                    " accepted"));
    return slices;
  }
  for (const Json& json : array) {
    JsonFields slice(json, absl::StrCat(fields.source(), ": ", field));
    const auto [unit_begin, unit_end] = ReadRange(slice, "units");
    const auto [expert_begin, expert_end] = ReadRange(slice, "experts");
    fields.Take(slice.status());
    slices.push_back({{unit_begin, unit_end}, {expert_begin, expert_end}});
  }
  return slices;
}

absl::Status CheckNodeName(absl::string_view name, absl::string_view what) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
  if (name.empty() || name.size() > kMaxNameLength || !plain || name.front() == '.' ||
      absl::EndsWith(name, ".partial")) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": ", Brief(Json(std::string(name))), " is no name; 1 to ", kMaxNameLength,
        " characters of a-z A-Z 0-9 . _ - are, without a dot at the beginning or "
        ".partial at the end"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/checkpoint/checkpoint.h"
#include "common/io/checked_range.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr size_t kMaxDimensions = 8;

// Bytes of one element of the dtypes that safetensors knows and that fill whole bytes, also those
// we do not read; nothing for any other name.
std::optional<uint64_t> ElementBytes(absl::string_view dtype) {
  static constexpr std::pair<absl::string_view, uint64_t> kSizes[] = {
      {"F32", 4},     {"F16", 2},     {"BF16", 2},    {"F64", 8}, {"I64", 8},  {"U64", 8},
      {"C64", 8},     {"I32", 4},     {"U32", 4},     {"I16", 2}, {"U16", 2},  {"I8", 1},
      {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"U8", 1},  {"BOOL", 1},
  };
  for (const auto& [name, bytes] : kSizes) {
    if (name == dtype) {
      return bytes;
    }
  }
  return std::nullopt;
}

// A list of at most `limit` non-negative integers.
bool ReadSizes(const Json* json, size_t limit, std::vector<uint64_t>& out) {
  if (json == nullptr || !json->is_array() || json->size() > limit) {
    return false;
  }
  for (const Json& value : *json) {
    if (!value.is_number_unsigned()) {
      return false;
    }
    out.push_back(value.get<uint64_t>());
  }
  return true;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

absl::StatusOr<Range> ParseTensor(const std::string& name, const Json& json, uint64_t data_bytes,
                                  absl::string_view file, SafetensorsHeader& header) {
  const std::string where = absl::StrCat(file, ": tensor ", Brief(Json(name)));
  if (!json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is not described by an object"));
  }
  JsonFields fields(json, where);
  const std::string dtype = fields.String("dtype");
  SHOAL_RETURN_IF_ERROR(fields.status());
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  if (!ReadSizes(fields.Find("shape"), kMaxDimensions, shape)) {
    fields.Fail("shape", absl::StrCat("is not a list of at most ", kMaxDimensions, " sizes"));
  } else if (!ReadSizes(fields.Find("data_offsets"), 2, offsets) || offsets.size() != 2) {
    fields.Fail("data_offsets", "is not a pair of byte offsets");
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  // The size of a dtype that is new to us is unknown: its range only has to fit the file.
  const std::optional<uint64_t> element_bytes = ElementBytes(dtype);
  const std::optional<uint64_t> elements = CheckedProduct(shape);
  const std::optional<uint64_t> bytes =
      elements ? CheckedMul(*elements, element_bytes.value_or(1)) : std::nullopt;
  const std::string shape_text = absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
  if (!bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": the product of its shape ", shape_text, " overflows 64 bits"));
  }
  if (offsets[0] > offsets[1]) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": its data_offsets begin at ",
                                                   offsets[0], " and end before, at ", offsets[1]));
  }
  if (offsets[1] > data_bytes) {
    return absl::DataLossError(absl::StrCat(where, ": its data_offsets ", offsets[0], " to ",
                                            offsets[1], " leave the ", data_bytes,
                                            " bytes of data; the file is truncated or damaged"));
  }
  if (element_bytes && offsets[1] - offsets[0] != *bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": its data_offsets hold ", offsets[1] - offsets[0],
                     " bytes, its shape ", shape_text, " of ", dtype, " calls for ", *bytes));
  }
  if (const auto readable = DTypeFromName(dtype)) {
    header.tensors[name] = {std::string(file), *readable, std::move(shape), offsets[0], *bytes};
  } else {
    header.unreadable[name] = dtype;
  }
  return Range{offsets[0], offsets[1], name};
}

// The ranges must follow each other without overlap or hole and cover the data.
absl::Status CheckTiling(std::vector<Range> ranges, uint64_t data_bytes, absl::string_view file) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const Range& range : ranges) {
    if (range.begin != covered) {
      return absl::DataLossError(
          absl::StrCat(file, ": tensor ", Brief(Json(range.name)), " begins at byte ", range.begin,
                       range.begin < covered ? ", inside the one before it, which ends at "
                                             : ", leaving a hole after ",
                       covered));
    }
    covered = range.end;
  }
  if (covered != data_bytes) {
    return absl::DataLossError(absl::StrCat(file, ": its tensors end at byte ", covered, " of the ",
                                            data_bytes, " bytes of data"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text,
                                                         uint64_t data_bytes,
                                                         absl::string_view file) {
  SHOAL_ASSIGN_OR_RETURN(const Json json,
                         ParseJsonObject(text, absl::StrCat(file, ": safetensors header")));
  SafetensorsHeader header;
  std::vector<Range> ranges;
  for (const auto& [name, tensor] : json.items()) {
    if (name == "__metadata__") {
      continue;
    }
    SHOAL_ASSIGN_OR_RETURN(Range range, ParseTensor(name, tensor, data_bytes, file, header));
    ranges.push_back(std::move(range));
  }
  SHOAL_RETURN_IF_ERROR(CheckTiling(std::move(ranges), data_bytes, file));
  return header;
}

uint64_t TensorInfo::num_elements() const { return size_bytes / DTypeBytes(dtype); }

}  // namespace shoal

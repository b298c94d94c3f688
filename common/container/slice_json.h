// How slices, and the names of the machines that hold them, are written in partition.json and in
// the plan of a pool.
#ifndef SHOAL_COMMON_CONTAINER_SLICE_JSON_H_
#define SHOAL_COMMON_CONTAINER_SLICE_JSON_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"

namespace shoal {

class JsonFields;

// What one machine may hold: comparing slices with each other takes quadratic time.
inline constexpr size_t kMaxSlices = 256;

// [{"units": [begin, end], "experts": [begin, end]}, ...]; begin is included, end is not.
nlohmann::json SlicesToJson(std::span<const ExpertSlice> slices);
// Reads such an array. An error is recorded in `fields`: a number that is not from 0 to 2^31 - 1,
// an empty range, more than kMaxSlices. Whether slices are inside a model is CheckSlices' part.
std::vector<ExpertSlice> ReadSlices(JsonFields& fields, const char* field);

// INVALID_ARGUMENT unless `name` is 1 to 63 characters of a-z A-Z 0-9 . _ - that can be the name of
// a directory: it does not begin with a dot, nor end like a directory in the making (".partial").
// Begins with `what`.
absl::Status CheckNodeName(absl::string_view name, absl::string_view what);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_SLICE_JSON_H_

// The machines of a pool that is to be planned, as a file says they are. docs/format.md describes
// the fields.
#ifndef SHOAL_COORDINATOR_POOL_POOL_SPEC_H_
#define SHOAL_COORDINATOR_POOL_POOL_SPEC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/pool/pool_forecast.h"

namespace shoal {

inline constexpr int kPoolSpecVersion = 1;

// Parses and checks a spec: every rate is there and positive, names and addresses are some. `name`
// is the file's path, for messages.
//   UNIMPLEMENTED      a version this build does not have, named
//   INVALID_ARGUMENT   malformed; names the field
absl::StatusOr<std::vector<NodeRates>> ParsePoolSpec(absl::string_view text,
                                                     absl::string_view name);

// ParsePoolSpec of a file of at most 1 MiB, and what reading it can fail with.
absl::StatusOr<std::vector<NodeRates>> ReadPoolSpec(const std::string& path);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_SPEC_H_

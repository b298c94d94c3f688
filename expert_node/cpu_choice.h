// The CPUs that a program runs on, as people choose them.
#ifndef SHOAL_EXPERT_NODE_CPU_CHOICE_H_
#define SHOAL_EXPERT_NODE_CPU_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// For --help of the flag --cpus.
inline constexpr absl::string_view kCpusHelp =
    "CPUs to run on, like 0-3,8; threads that compute stay on\none each (default: all, where the "
    "system likes)";

// Keeps the process, whose first thread calls, on the CPUs of --cpus. Without --cpus it stays as it is, and none are
// returned.
//   INVALID_ARGUMENT  no list, a CPU that this process may not use, or more --threads than CPUs
absl::StatusOr<std::vector<int>> ChooseCpus(const std::optional<std::string>& cpus,
                                            std::optional<int64_t> num_threads);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_CPU_CHOICE_H_

// CPUs by number, as people choose them for a program.
#ifndef SHOAL_COMMON_SYNC_CPU_LIST_H_
#define SHOAL_COMMON_SYNC_CPU_LIST_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// "0-3,8" as {0, 1, 2, 3, 8}: increasing, each once.
//   INVALID_ARGUMENT  quotes the part that is no number or range, or is above 1023
absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text);
// And back, in as few parts as there are.
std::string FormatCpuList(const std::vector<int>& cpus);

// Those that the calling thread may run on, by the system's own word, increasing.
std::vector<int> AllowedCpus();

// Keeps the calling thread, and all that it starts from then on, on these CPUs. For the beginning of a program.
//   INVALID_ARGUMENT  names one that is not there or that this process may not use, and those it may
absl::Status StayOnCpus(const std::vector<int>& cpus);

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_CPU_LIST_H_

#include "common/sync/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace shoal {
namespace {

// What cpu_set_t holds.
constexpr int kMostCpus = CPU_SETSIZE;

bool ParseCpu(absl::string_view text, int& cpu) {
  return !text.empty() && absl::SimpleAtoi(text, &cpu) && cpu >= 0 && cpu < kMostCpus;
}

}  // namespace

absl::StatusOr<std::vector<int>> ParseCpuList(absl::string_view text) {
  std::set<int> cpus;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    const bool is_range = part.find('-') != absl::string_view::npos;
    if (!ParseCpu(ends.first, first) || !ParseCpu(is_range ? ends.second : ends.first, last) ||
        last < first) {
      return absl::InvalidArgumentError(absl::StrCat("\"", part,
                                                     "\" is no CPU; write numbers from 0 to ",
                                                     kMostCpus - 1, " and ranges, like 0-3,8"));
    }
    for (int cpu = first; cpu <= last; ++cpu) {
      cpus.insert(cpu);
    }
  }
  return std::vector<int>(cpus.begin(), cpus.end());
}

std::string FormatCpuList(const std::vector<int>& cpus) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) {
      ++end;
    }
    parts.push_back(end - i == 1 ? absl::StrCat(cpus[i])
                                 : absl::StrCat(cpus[i], "-", cpus[end - 1]));
    i = end;
  }
  return absl::StrJoin(parts, ",");
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < kMostCpus; ++cpu) {
      if (CPU_ISSET(static_cast<size_t>(cpu), &set)) {
        cpus.push_back(cpu);
      }
    }
  }
  return cpus;
}

absl::Status StayOnCpus(const std::vector<int>& cpus) {
  const std::vector<int> allowed = AllowedCpus();
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (!std::binary_search(allowed.begin(), allowed.end(), cpu)) {
      return absl::InvalidArgumentError(
          absl::StrCat("CPU ", cpu, " is not there, or not for this process; it may use ",
                       FormatCpuList(allowed)));
    }
    CPU_SET(static_cast<size_t>(cpu), &set);
  }
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("CPUs ", FormatCpuList(cpus), ": ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

}  // namespace shoal

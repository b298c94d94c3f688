#include "common/sync/cpu_name.h"

#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace shoal {

std::string CpuName(const std::string& proc_root) {
  std::ifstream file(proc_root + "/cpuinfo");
  std::vector<std::string> numbers;
  // An empty line ends the first CPU.
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    const absl::string_view name = absl::StripAsciiWhitespace(field.first);
    const absl::string_view value = absl::StripAsciiWhitespace(field.second);
    if (name == "model name" && !value.empty()) {
      return std::string(value);
    }
    if (name == "CPU implementer" || name == "CPU part") {
      numbers.emplace_back(value);
    }
  }
  return numbers.empty() ? "unknown" : absl::StrJoin(numbers, " ");
}

}  // namespace shoal

#include "common/sync/cgroup.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace shoal {
namespace {

// This process's path for a controller, from lines "id:controllers:path"; empty where it has none.
std::string CgroupPath(const std::string& proc_root, absl::string_view controller) {
  std::ifstream file(absl::StrCat(proc_root, "/self/cgroup"));
  for (std::string line; std::getline(file, line);) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) {
      continue;
    }
    const std::vector<absl::string_view> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      return std::string(fields[2]);
    }
  }
  return "";
}

}  // namespace

std::vector<std::string> CgroupDirectories(const std::string& proc_root, const std::string& root,
                                           absl::string_view controller) {
  std::vector<std::string> directories;
  std::string path = CgroupPath(proc_root, controller);
  for (;;) {
    if (path != "/") {  // of the root itself: the same directory as ""
      directories.push_back(absl::StrCat(root, path));
    }
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return directories;
    }
    path.resize(slash);
  }
}

}  // namespace shoal

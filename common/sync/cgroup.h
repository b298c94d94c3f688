// Where the control groups of this process keep their files.
#ifndef SHOAL_COMMON_SYNC_CGROUP_H_
#define SHOAL_COMMON_SYNC_CGROUP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shoal {

// The directories under `root` (where the hierarchy is mounted) of this process's cgroup and of all
// its parents, the own one first and `root` last: a limit anywhere above binds too. `controller` is
// "" for version 2, else version 1's, as PROC_ROOT/self/cgroup names it. Some may not exist:
// inside a container the names can be the host's.
std::vector<std::string> CgroupDirectories(const std::string& proc_root, const std::string& root,
                                           absl::string_view controller);

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_CGROUP_H_

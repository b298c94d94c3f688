// How much memory this process may take: what the system has, cut by cgroup limits of both versions.
#ifndef SHOAL_COMMON_SYNC_USABLE_MEMORY_H_
#define SHOAL_COMMON_SYNC_USABLE_MEMORY_H_

#include <cstdint>
#include <string>

namespace shoal {

// Bytes this process may still take: what a memory plan without a budget goes by. From
// /proc/meminfo and the cgroup (v2, v1) below `cgroup_root`.
uint64_t UsableMemoryBytes(const std::string& proc_root = "/proc",
                           const std::string& cgroup_root = "/sys/fs/cgroup");

// What this process could take at most were nothing else running: MemTotal, cut by the limits of
// its cgroups. Does not change from run to run.
uint64_t TotalMemoryBytes(const std::string& proc_root = "/proc",
                          const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_USABLE_MEMORY_H_

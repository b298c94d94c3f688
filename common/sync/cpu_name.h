// What kind of CPU this is.
#ifndef SHOAL_COMMON_SYNC_CPU_NAME_H_
#define SHOAL_COMMON_SYNC_CPU_NAME_H_

#include <string>

namespace shoal {

// The model name of the first CPU as the kernel gives it, like "AMD EPYC 9654 96-Core Processor"; on ARM, where it
// gives numbers, like "0x41 0xd0c" (implementer and part); "unknown" where it gives neither. The argument is for tests.
std::string CpuName(const std::string& proc_root = "/proc");

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_CPU_NAME_H_

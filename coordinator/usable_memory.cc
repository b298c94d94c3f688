// How much memory this process may still take: what the system has free, cut by cgroup limits of
// both versions.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/memory_plan.h"

namespace shoal {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A file that holds one number of bytes; nothing where it is missing or says "max".
std::optional<uint64_t> ReadNumber(const std::string& path) {
  uint64_t value = 0;
  if (absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadAll(path)), &value)) {
    return value;
  }
  return std::nullopt;
}

// "MemAvailable:   123 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> MemAvailable(const std::string& proc_root) {
  const std::string text = ReadAll(absl::StrCat(proc_root, "/meminfo"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) {
      continue;
    }
    uint64_t kib = 0;
    absl::ConsumeSuffix(&line, "kB");
    if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

// "name value" lines, as in memory.stat.
uint64_t StatValue(const std::string& text, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t value = 0;
    if (absl::ConsumePrefix(&line, absl::StrCat(name, " ")) && absl::SimpleAtoi(line, &value)) {
      return value;
    }
  }
  return 0;
}

// What one cgroup directory leaves: its limit less its use, where page cache that can be dropped
// does not count as used.
std::optional<uint64_t> LeftIn(const std::string& directory, absl::string_view limit_file,
                               absl::string_view usage_file) {
  const auto limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
  const auto usage = ReadNumber(absl::StrCat(directory, "/", usage_file));
  // Version 1 writes "no limit" as a number near 2^63.
  if (!limit || !usage || *limit > std::numeric_limits<uint64_t>::max() / 4) {
    return std::nullopt;
  }
  const std::string stat = ReadAll(absl::StrCat(directory, "/memory.stat"));
  const uint64_t droppable =
      std::max(StatValue(stat, "inactive_file"), StatValue(stat, "total_inactive_file"));
  const uint64_t used = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, used);
}

// This process's cgroup path for a controller ("" for version 2), from lines "id:controllers:path".
std::string CgroupPath(const std::string& proc_root, absl::string_view controller) {
  const std::string text = ReadAll(absl::StrCat(proc_root, "/self/cgroup"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
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

// The smallest room over the cgroup and all its parents: a limit anywhere above binds too.
void CutByHierarchy(const std::string& root, std::string path, absl::string_view limit_file,
                    absl::string_view usage_file, uint64_t& bytes) {
  for (;;) {
    if (const auto left = LeftIn(absl::StrCat(root, path), limit_file, usage_file)) {
      bytes = std::min(bytes, *left);
    }
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) {
      return;
    }
    path.resize(slash);
  }
}

}  // namespace

uint64_t UsableMemoryBytes(const std::string& proc_root, const std::string& cgroup_root) {
  uint64_t bytes = MemAvailable(proc_root).value_or(0);
  CutByHierarchy(cgroup_root, CgroupPath(proc_root, ""), "memory.max", "memory.current", bytes);
  CutByHierarchy(absl::StrCat(cgroup_root, "/memory"), CgroupPath(proc_root, "memory"),
                 "memory.limit_in_bytes", "memory.usage_in_bytes", bytes);
  return bytes;
}

}  // namespace shoal

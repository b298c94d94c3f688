#include "common/sync/usable_memory.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/sync/cgroup.h"

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

// A line like "MemAvailable:   123 kB" of /proc/meminfo, in bytes.
std::optional<uint64_t> MemInfo(const std::string& proc_root, absl::string_view name) {
  const std::string text = ReadAll(absl::StrCat(proc_root, "/meminfo"));
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, name)) {
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

// The files of one version of cgroups.
struct CgroupFiles {
  std::string root;
  absl::string_view controller;  // "" for version 2
  absl::string_view limit;
  absl::string_view usage;
};

std::array<CgroupFiles, 2> BothVersions(const std::string& cgroup_root) {
  return {CgroupFiles{cgroup_root, "", "memory.max", "memory.current"},
          CgroupFiles{absl::StrCat(cgroup_root, "/memory"), "memory", "memory.limit_in_bytes",
                      "memory.usage_in_bytes"}};
}

std::optional<uint64_t> LimitOf(const std::string& directory, const CgroupFiles& files) {
  const auto limit = ReadNumber(absl::StrCat(directory, "/", files.limit));
  // Version 1 writes "no limit" as a number near 2^63.
  return limit && *limit <= std::numeric_limits<uint64_t>::max() / 4 ? limit : std::nullopt;
}

// What one cgroup directory leaves: its limit less its use, where page cache that can be dropped
// does not count as used.
std::optional<uint64_t> LeftIn(const std::string& directory, const CgroupFiles& files) {
  const auto limit = LimitOf(directory, files);
  const auto usage = ReadNumber(absl::StrCat(directory, "/", files.usage));
  if (!limit || !usage) {
    return std::nullopt;
  }
  const std::string stat = ReadAll(absl::StrCat(directory, "/memory.stat"));
  const uint64_t droppable =
      std::max(StatValue(stat, "inactive_file"), StatValue(stat, "total_inactive_file"));
  const uint64_t used = *usage - std::min(*usage, droppable);
  return *limit - std::min(*limit, used);
}

using BytesOf = std::optional<uint64_t> (*)(const std::string& directory, const CgroupFiles& files);

// `bytes`, or the smallest `bytes_of` over the cgroups of this process and all their parents: a
// limit anywhere above binds too.
uint64_t CutByCgroups(uint64_t bytes, const std::string& proc_root, const std::string& cgroup_root,
                      BytesOf bytes_of) {
  for (const CgroupFiles& files : BothVersions(cgroup_root)) {
    for (const std::string& directory :
         CgroupDirectories(proc_root, files.root, files.controller)) {
      bytes = std::min(bytes, bytes_of(directory, files).value_or(bytes));
    }
  }
  return bytes;
}

}  // namespace

uint64_t UsableMemoryBytes(const std::string& proc_root, const std::string& cgroup_root) {
  return CutByCgroups(MemInfo(proc_root, "MemAvailable:").value_or(0), proc_root, cgroup_root,
                      LeftIn);
}

uint64_t TotalMemoryBytes(const std::string& proc_root, const std::string& cgroup_root) {
  return CutByCgroups(MemInfo(proc_root, "MemTotal:").value_or(0), proc_root, cgroup_root, LimitOf);
}

}  // namespace shoal

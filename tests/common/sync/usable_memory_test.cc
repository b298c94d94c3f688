#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/sync/usable_memory.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

class UsableMemoryTest : public ::testing::Test {
 protected:
  UsableMemoryTest() {
    Write("proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\nSwapFree: 0 kB\n");
    Write("proc/self/cgroup", "0::/a/b\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::string full = dir_ / path;
    std::filesystem::create_directories(std::filesystem::path(full).parent_path());
    std::ofstream(full) << text;
  }
  uint64_t Usable() const { return UsableMemoryBytes(dir_ / "proc", dir_ / "cgroup"); }

  testing::TempDir dir_;
};

TEST_F(UsableMemoryTest, IsWhatTheSystemHasAvailableWithoutLimits) {
  EXPECT_EQ(Usable(), 8000U * 1024);
}

TEST_F(UsableMemoryTest, IsCutByTheCgroupsLimitLessItsUse) {
  Write("cgroup/a/b/memory.max", "5000000\n");
  Write("cgroup/a/b/memory.current", "2000000\n");
  EXPECT_EQ(Usable(), 3000000U);
}

TEST_F(UsableMemoryTest, DoesNotCountDroppablePageCacheAsUsed) {
  Write("cgroup/a/b/memory.max", "5000000\n");
  Write("cgroup/a/b/memory.current", "2000000\n");
  Write("cgroup/a/b/memory.stat", "anon 500000\ninactive_file 1500000\n");
  EXPECT_EQ(Usable(), 4500000U);
}

TEST_F(UsableMemoryTest, IsCutByALimitOfAParent) {
  Write("cgroup/a/b/memory.max", "max\n");
  Write("cgroup/a/b/memory.current", "100\n");
  Write("cgroup/a/memory.max", "4000000\n");
  Write("cgroup/a/memory.current", "1000000\n");
  EXPECT_EQ(Usable(), 3000000U);
}

TEST_F(UsableMemoryTest, ReadsVersionOneHierarchies) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/x\n3:memory:/y/z\n0::/\n");
  Write("cgroup/memory/y/z/memory.limit_in_bytes", "6000000\n");
  Write("cgroup/memory/y/z/memory.usage_in_bytes", "5000000\n");
  EXPECT_EQ(Usable(), 1000000U);
  // "No limit" in version one.
  Write("cgroup/memory/y/z/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(Usable(), 8000U * 1024);
}

TEST_F(UsableMemoryTest, TotalIsTheSmallestLimitWhateverIsInUse) {
  EXPECT_EQ(TotalMemoryBytes(dir_ / "proc", dir_ / "cgroup"), 9000U * 1024);
  Write("cgroup/a/b/memory.max", "5000000\n");
  Write("cgroup/a/b/memory.current", "2000000\n");
  Write("cgroup/a/memory.max", "4000000\n");
  EXPECT_EQ(TotalMemoryBytes(dir_ / "proc", dir_ / "cgroup"), 4000000U);
  Write("cgroup/a/memory.max", "max\n");
  EXPECT_EQ(TotalMemoryBytes(dir_ / "proc", dir_ / "cgroup"), 5000000U);
}

TEST_F(UsableMemoryTest, IsZeroWhenTheLimitIsAlreadyExceeded) {
  Write("cgroup/a/b/memory.max", "1000\n");
  Write("cgroup/a/b/memory.current", "5000\n");
  EXPECT_EQ(Usable(), 0U);
}

}  // namespace
}  // namespace shoal

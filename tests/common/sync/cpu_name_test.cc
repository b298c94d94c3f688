#include "common/sync/cpu_name.h"

#include <gtest/gtest.h>

#include <string>

#include "common/io/file.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::TempDir;

// CpuName where /proc/cpuinfo is `text`.
std::string NameFrom(const std::string& text) {
  const TempDir proc;
  SHOAL_EXPECT_OK(WriteFileAtomically(proc / "cpuinfo", text));
  return CpuName(proc.path());
}

TEST(CpuNameTest, IsTheModelNameOfTheFirstCpu) {
  EXPECT_EQ(NameFrom("processor\t: 0\nvendor_id\t: X\nmodel name\t: Fast: CPU 9\nflags\t: fpu\n\n"
                     "processor\t: 1\nmodel name\t: Slow CPU\n"),
            "Fast: CPU 9");
}

TEST(CpuNameTest, IsItsNumbersWhereThereIsNoName) {
  EXPECT_EQ(NameFrom("processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\n"
                     "CPU part\t: 0xd0c\n\nprocessor\t: 1\nCPU part\t: 0xd05\n"),
            "0x41 0xd0c");
}

TEST(CpuNameTest, IsUnknownElse) {
  EXPECT_EQ(NameFrom("processor\t: 0\nmodel name\t:\n"), "unknown");
  EXPECT_EQ(CpuName("/nowhere"), "unknown");
}

}  // namespace
}  // namespace shoal

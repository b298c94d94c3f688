#include "common/sync/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

TEST(CpuListTest, NumbersAndRangesAreReadInAnyOrder) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("8,0-3"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseCpuList("2-2,1-3,1023"), ElementsAre(1, 2, 3, 1023));
}

TEST(CpuListTest, WhatIsNoListIsRefusedWithThePart) {
  for (const std::string part : {"", "x", "-1", "3-1", "1-", "1-2-3", "1024", "0-1024", "1 2"}) {
    EXPECT_THAT(ParseCpuList("0," + part), StatusIs(absl::StatusCode::kInvalidArgument,
                                                    HasSubstr("\"" + part + "\" is no CPU")));
  }
}

TEST(CpuListTest, ListsAreWrittenInRanges) {
  for (const std::string text : {"0", "0-3,8", "1,3,5-6"}) {
    EXPECT_EQ(FormatCpuList(*ParseCpuList(text)), text);
  }
}

// In a thread of its own, which takes its affinity with it.
TEST(CpuListTest, AThreadStaysWhereItIsTold) {
  const std::vector<int> all = AllowedCpus();
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    SHOAL_EXPECT_OK(StayOnCpus({all.back()}));
    EXPECT_THAT(AllowedCpus(), ElementsAre(all.back()));
    std::thread([&] { EXPECT_THAT(AllowedCpus(), ElementsAre(all.back())); }).join();
    EXPECT_THAT(StayOnCpus({1023}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("CPU 1023 is not there, or not for this process; it may use " +
                                   FormatCpuList({all.back()}))));
    EXPECT_THAT(AllowedCpus(), ElementsAre(all.back()));
  }).join();
  EXPECT_EQ(AllowedCpus(), all);
}

}  // namespace
}  // namespace shoal

#include "coordinator/drill.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

TEST(DrillTest, TheStrikeComesAfterAQuarter) {
  EXPECT_EQ(StrikeIndex(200), 50);
  EXPECT_EQ(StrikeIndex(kLeastDrillTokens), 2);
}

TEST(DrillTest, TheGapIsBeyondTheSlowerSteadyState) {
  DrillReport report;
  report.steady_before = absl::Milliseconds(10);
  report.steady_after = absl::Milliseconds(30);
  report.longest = absl::Milliseconds(100);
  EXPECT_EQ(report.Gap(), absl::Milliseconds(70));
  report.steady_before = absl::Milliseconds(40);
  EXPECT_EQ(report.Gap(), absl::Milliseconds(60));
  report.longest = absl::Milliseconds(20);
  EXPECT_EQ(report.Gap(), absl::ZeroDuration());
}

}  // namespace
}  // namespace shoal

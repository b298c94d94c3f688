#include "common/metrics/prometheus_text.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/time/time.h"
#include "common/metrics/histogram.h"

namespace shoal {
namespace {

// The expected texts follow the "Text format details" of Prometheus's page on exposition formats.
TEST(PrometheusTextTest, AFamilyHasItsHelpAndTypeOnceThenSamples) {
  PrometheusText text;
  text.Counter("shoal_reads_total", "Reads.");
  text.Sample({{"node", "attic"}, {"part", "disk"}}, uint64_t{18446744073709551615U});
  text.Sample({{"node", "cellar"}}, absl::Milliseconds(1500));
  text.Gauge("shoal_share", "A share.");
  text.Sample({}, 0.1);
  EXPECT_EQ(text.Take(),
            "# HELP shoal_reads_total Reads.\n"
            "# TYPE shoal_reads_total counter\n"
            "shoal_reads_total{node=\"attic\",part=\"disk\"} 18446744073709551615\n"
            "shoal_reads_total{node=\"cellar\"} 1.5\n"
            "# HELP shoal_share A share.\n"
            "# TYPE shoal_share gauge\n"
            "shoal_share 0.1\n");
  EXPECT_EQ(text.Take(), "");
}

TEST(PrometheusTextTest, LabelsMayBeAnyText) {
  PrometheusText text;
  text.Gauge("g", "G.");
  text.Sample({{"error", "a \"quoted\" \\ back\nline"}}, uint64_t{1});
  EXPECT_EQ(text.Take(),
            "# HELP g G.\n# TYPE g gauge\ng{error=\"a \\\"quoted\\\" \\\\ back\\nline\"} 1\n");
}

// 1 ms and 10 ms are bounds, and belong to their own bucket; 11 ms and 1 s are above both. Their sum
// is 1.022 s.
TEST(PrometheusTextTest, BucketsOfAHistogramCountWhatIsAtMostTheirBound) {
  Histogram histogram({absl::Milliseconds(1), absl::Milliseconds(10)});
  for (const int ms : {1, 10, 11, 1000}) {
    histogram.Observe(absl::Milliseconds(ms));
  }
  PrometheusText text;
  text.Histogram("shoal_token_seconds", "Tokens.", histogram.Counts());
  EXPECT_EQ(text.Take(),
            "# HELP shoal_token_seconds Tokens.\n"
            "# TYPE shoal_token_seconds histogram\n"
            "shoal_token_seconds_bucket{le=\"0.001\"} 1\n"
            "shoal_token_seconds_bucket{le=\"0.01\"} 2\n"
            "shoal_token_seconds_bucket{le=\"+Inf\"} 4\n"
            "shoal_token_seconds_sum 1.022\n"
            "shoal_token_seconds_count 4\n");
}

TEST(TokenTimeBoundsTest, AreOneTwoAndFiveTimesPowersOfTen) {
  const std::vector<absl::Duration> bounds = TokenTimeBounds();
  ASSERT_EQ(bounds.size(), 16U);
  EXPECT_EQ(bounds.front(), absl::Milliseconds(1));
  EXPECT_EQ(bounds[4], absl::Milliseconds(20));
  EXPECT_EQ(bounds.back(), absl::Seconds(100));
}

}  // namespace
}  // namespace shoal

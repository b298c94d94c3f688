#include "coordinator/cli/cluster_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PoolNodeStatus Node(int64_t requests) {
  PoolNodeStatus node;
  node.name = "attic";
  node.address = "127.0.0.1:7101";
  node.state = NodeState::kLive;
  node.slices = {{{0, 8}, {0, 32}}};
  node.computes = {{{0, 5}, {0, 32}}, {{5, 8}, {0, 4}}};
  node.read_bytes_per_second = 2'000'000'000;
  node.requests = requests;
  // Of each request: 10 ms, of them 7 of work, 4 of those waiting for the disk, and 1 in the queue.
  node.work.round_trip = requests * absl::Milliseconds(10);
  node.work.execute = requests * absl::Milliseconds(7);
  node.work.disk_wait = requests * absl::Milliseconds(4);
  node.work.queue = requests * absl::Milliseconds(1);
  node.work.expert_hits = requests;
  node.work.expert_misses = 3 * requests;
  node.work.expert_bytes = static_cast<uint64_t>(requests) * 1000;
  return node;
}

ClusterLook Look(const PoolNodeStatus& before, const PoolNodeStatus& now) {
  ClusterLook look;
  look.before.nodes = {before};
  look.now.nodes = {now};
  look.interval = absl::Seconds(2);
  return look;
}

TEST(ClusterReportTest, SharesAreOfTheRoundTrip) {
  const Json node = ClusterJson(Look(Node(10), Node(30)))["nodes"][0];
  EXPECT_DOUBLE_EQ(node["kernel_share"], 0.3);
  EXPECT_DOUBLE_EQ(node["disk_share"], 0.4);
  EXPECT_DOUBLE_EQ(node["queue_share"], 0.1);
  EXPECT_DOUBLE_EQ(node["network_share"], 0.2);
  EXPECT_DOUBLE_EQ(node["hit_rate"], 0.25);
  EXPECT_DOUBLE_EQ(node["reading_bytes_per_second"], 20 * 1000 / 2.0);
}

TEST(ClusterReportTest, OnlyTheTimeBetweenTheLooksCounts) {
  PoolNodeStatus now = Node(10);
  now.requests += 1;
  now.work.round_trip += absl::Milliseconds(100);
  now.work.execute += absl::Milliseconds(100);
  now.work.expert_hits += 4;
  const Json node = ClusterJson(Look(Node(10), now))["nodes"][0];
  EXPECT_DOUBLE_EQ(node["kernel_share"], 1);
  EXPECT_DOUBLE_EQ(node["network_share"], 0);
  EXPECT_DOUBLE_EQ(node["hit_rate"], 1);
  EXPECT_DOUBLE_EQ(node["reading_bytes_per_second"], 0);
}

TEST(ClusterReportTest, ANodeThatDidNothingHasTheSharesOfAllItsWork) {
  const Json node = ClusterJson(Look(Node(10), Node(10)))["nodes"][0];
  EXPECT_DOUBLE_EQ(node["disk_share"], 0.4);
  EXPECT_DOUBLE_EQ(node["reading_bytes_per_second"], 0);
}

TEST(ClusterReportTest, CountersThatBeganAnewAreNoDifference) {
  const Json node = ClusterJson(Look(Node(30), Node(10)))["nodes"][0];
  EXPECT_DOUBLE_EQ(node["disk_share"], 0.4);
  EXPECT_DOUBLE_EQ(node["reading_bytes_per_second"], 0);
}

TEST(ClusterReportTest, AnotherPlanBetweenTheLooksMeansThatCountersBeganAnew) {
  ClusterLook look = Look(Node(10), Node(30));
  look.now.epoch = 2;
  const Json node = ClusterJson(look)["nodes"][0];
  EXPECT_DOUBLE_EQ(node["disk_share"], 0.4);
  EXPECT_DOUBLE_EQ(node["hit_rate"], 0.25);
  EXPECT_DOUBLE_EQ(node["reading_bytes_per_second"], 0);
}

TEST(ClusterReportTest, ANodeThatWasNeverAskedDividesByNothing) {
  const Json node = ClusterJson(Look(Node(0), Node(0)))["nodes"][0];
  EXPECT_DOUBLE_EQ(node["disk_share"], 0);
  EXPECT_DOUBLE_EQ(node["hit_rate"], 0);
}

TEST(ClusterReportTest, TheTableHasUnitsAndTheReasonOfALoss) {
  PoolNodeStatus lost = Node(10);
  lost.state = NodeState::kLost;
  lost.last_error = "connection refused";
  const std::string table = FormatCluster(Look(Node(10), lost));
  EXPECT_THAT(table, HasSubstr("0-4,+1"));
  EXPECT_THAT(table, HasSubstr("1.86 GiB/s"));
  EXPECT_THAT(table, HasSubstr("lost"));
  EXPECT_THAT(table, HasSubstr("connection refused"));
}

TEST(ClusterReportTest, AQuarantineHasItsEvidence) {
  PoolNodeStatus liar = Node(10);
  liar.state = NodeState::kQuarantined;
  liar.evidence = "layer 3: 1 of 192 sums differ";
  liar.audits = 7;
  const ClusterLook look = Look(Node(10), liar);
  EXPECT_THAT(FormatCluster(look),
              AllOf(HasSubstr("quarantined"), HasSubstr("\n  layer 3: 1 of 192 sums differ\n")));
  const Json node = ClusterJson(look)["nodes"][0];
  EXPECT_EQ(node["state"], "quarantined");
  EXPECT_EQ(node["evidence"], liar.evidence);
  EXPECT_EQ(node["audits"], 7);
}

TEST(ClusterReportTest, ExpertsAreNamedWhereANodeHasNotAll) {
  ClusterLook look;
  look.now.nodes.resize(2);
  look.now.nodes[0].name = "attic";
  look.now.nodes[0].computes = {{{0, 8}, {0, 16}}};
  look.now.nodes[1].name = "cellar";
  look.now.nodes[1].computes = {{{0, 8}, {16, 32}}};
  EXPECT_THAT(FormatCluster(look), AllOf(HasSubstr("0-7 e0-15"), HasSubstr("0-7 e16-31")));
  look.now.nodes[1].computes = {{{0, 4}, {0, 32}}};
  look.now.nodes[0].computes = {{{4, 8}, {0, 32}}};
  EXPECT_THAT(FormatCluster(look), Not(HasSubstr(" e0")));
}

TEST(ClusterReportTest, SaysWhatTheCoordinatorComputes) {
  ClusterLook look = Look(Node(10), Node(10));
  EXPECT_THAT(FormatCluster(look), Not(HasSubstr("itself")));
  look.now.own_slices = {{{5, 8}, {0, 32}}};
  EXPECT_THAT(FormatCluster(look),
              HasSubstr("the coordinator itself computes units 5-7 of experts 0-31\n"));
  EXPECT_EQ(ClusterJson(look)["own_slices"][0]["units"], (std::vector<int>{5, 8}));
}

}  // namespace
}  // namespace shoal

// Pools of real gRPC servers on the loopback device: the bits of one machine, whatever happens to
// the nodes.
#include "coordinator/pool/pool_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/container/container.h"
#include "common/sync/mutex.h"
#include "coordinator/convert/converter.h"
#include "tests/coordinator/pool/pool_fixture.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/tcp_relay.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::Experts;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TcpRelay;
using ::shoal::testing::TempDir;
using ::shoal::testing::TestNode;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ::shoal::testing::kLayer;
using ::shoal::testing::kNumUnits;
using ::shoal::testing::kPerToken;
using ::shoal::testing::kWhole;
using ::shoal::testing::MakeBatch;
using ::shoal::testing::Units;

class PoolBackendTest : public testing::PoolTest {};

TEST_F(PoolBackendTest, AnyPlacementGivesTheBitsOfOneMachine) {
  const std::vector<std::vector<std::vector<ExpertSlice>>> placements = {
      {{kWhole}},
      {{Units(0, 1)}, {Units(1, 3)}},
      {{Units(2, 3)}, {Units(0, 1)}, {Units(1, 2)}},
      {{Experts(0, 5)}, {Experts(5, 14)}},
      {{kWhole}, {kWhole}, {kWhole}, {kWhole}, {kWhole}},
      {{{{0, 2}, {0, 9}}}, {{{2, 3}, {0, 9}}, Experts(9, 14)}},
  };
  for (const auto& placement : placements) {
    backend_.reset();
    nodes_.clear();
    options_.plan.nodes.clear();
    for (size_t i = 0; i < placement.size(); ++i) {
      AddNode(absl::StrCat("n", i), placement[i]);
    }
    Connect();
    ExpectTheSameBits();
  }
}

TEST_F(PoolBackendTest, CountsWhatTheNodesRead) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  ExpectTheSameBits();
  const ExpertLayerStats stats = backend_->Stats()[1];
  EXPECT_EQ(stats.layer, kLayer);
  EXPECT_GT(stats.expert_misses, 0);
  EXPECT_EQ(stats.expert_reads, stats.expert_misses);
  // Two nodes, and two requests each: a node takes 4 rows.
  EXPECT_EQ(StatusOf(0).requests, 2);
  EXPECT_EQ(StatusOf(1).requests, 2);
}

TEST_F(PoolBackendTest, ACopyStandsInForANodeThatIsKilledWhileItComputes) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  ExpectTheSameBits();
  AwaitLive(0);
  const int calls = nodes_[0]->backend().calls();
  nodes_[0]->backend().Block(true);
  std::thread killer([this, calls] {
    while (nodes_[0]->backend().calls() == calls) {
      std::this_thread::yield();
    }
    nodes_[0]->Kill();
  });
  ExpectTheSameBits();
  killer.join();
  EXPECT_EQ(StatusOf(0).state, NodeState::kLost);
  EXPECT_EQ(StatusOf(0).losses, 1);
  ExpectTheSameBits();
}

// Three nodes in a chain with 4, 5 and 5 experts. Without the second, the first has the copy of its
// experts. In proportion to 4 and 5 are 6 and 8, so the third computes three of the first's.
TEST_F(PoolBackendTest, TheOthersShareWhatALostNodeComputed) {
  AddNode("a", {Experts(0, 4), Experts(4, 9)});
  AddNode("b", {Experts(4, 9), Experts(9, 14)});
  AddNode("c", {Experts(9, 14), Experts(0, 4)});
  options_.plan = PlanOf({{Experts(0, 4)}, {Experts(4, 9)}, {Experts(9, 14)}}, 1);
  options_.plan.nodes[0].copies = {Experts(4, 9)};
  options_.plan.nodes[1].copies = {Experts(9, 14)};
  options_.plan.nodes[2].copies = {Experts(0, 4)};
  Connect();
  ExpectTheSameBits();
  nodes_[1]->Kill();
  ExpectTheSameBits();
  AwaitLive(0);
  AwaitLive(2);
  const int64_t before = PartsOf(2);
  ExpectTheSameBits();
  int64_t expected = 0;  // distinct experts of each request: a node takes 4 rows
  for (const int64_t first : {0, 4}) {
    std::set<int32_t> chosen(
        batch_.ids.begin() + first * kPerToken,
        batch_.ids.begin() + std::min<int64_t>(first + 4, batch_.num_rows) * kPerToken);
    expected += std::count_if(chosen.begin(), chosen.end(), [](int32_t expert) {
      return (expert >= 1 && expert < 4) || expert >= 9;
    });
  }
  EXPECT_EQ(PartsOf(2) - before, expected);
}

TEST_F(PoolBackendTest, ACopyIsAskedWhenANodeIsLate) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  ExpectTheSameBits();
  nodes_[0]->backend().Block(true);
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(0).state, NodeState::kSuspect);
  EXPECT_GE(StatusOf(0).hedges, 1);
  nodes_[0]->backend().Block(false);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, ALateReplyCountsInsteadOfStandInsThatAreHalfDone) {
  AddNode("a", {kWhole});
  AddNode("b", {Units(0, 2)});
  AddNode("c", {Units(2, 3)});
  options_.plan.nodes[0].slices = {kWhole};
  Connect();
  ExpectTheSameBits();
  nodes_[0]->backend().Block(true);
  nodes_[2]->backend().Block(true);
  std::thread releaser([this] {
    while (StatusOf(1).requests == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    nodes_[0]->backend().Block(false);
  });
  ExpectTheSameBits();
  releaser.join();
  nodes_[2]->backend().Block(false);
}

TEST_F(PoolBackendTest, ACopyStandsInForADamagedRecord) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  nodes_[1]->backend().FailWith(absl::DataLossError("x.bank: layer 2 expert 4 unit 1"));
  ExpectTheSameBits();
  EXPECT_GT(StatusOf(1).failures, 0);
  EXPECT_EQ(StatusOf(0).failures, 0);
}

TEST_F(PoolBackendTest, DamageWithoutACopyNamesTheNode) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  nodes_[1]->backend().FailWith(absl::DataLossError("x.bank: layer 2 expert 4 unit 1"));
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out), StatusIs(absl::StatusCode::kDataLoss,
                                     AllOf(HasSubstr("node b"), HasSubstr("expert 4"),
                                           HasSubstr("no other holder of units 2-2"))));
}

TEST_F(PoolBackendTest, ANodeThatFindsFaultWithTheBatchAloneIsNotBelieved) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  nodes_[1]->backend().FailWith(absl::InvalidArgumentError("rows[0] is not finite"));
  ExpectTheSameBits();
  EXPECT_GT(StatusOf(1).failures, 0);
}

TEST_F(PoolBackendTest, ANodeThatLivesButNeverAnswersEndsTheWait) {
  options_.node_wait = absl::Milliseconds(300);
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  for (int i = 0; i < 3; ++i) {
    ExpectTheSameBits();  // so that it is known how long an answer takes
  }
  nodes_[1]->backend().Block(true);
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr(absl::StrCat("node b at ", nodes_[1]->address(), " lives")),
                             HasSubstr("units 2-2 of experts 0-13"), HasSubstr("--node-wait"))));
  nodes_[1]->backend().Block(false);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, ANodeThatNeverAnswersEndsTheWaitAlsoWhereItsStandInIsLost) {
  options_.node_wait = absl::Milliseconds(300);
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  options_.plan = PlanOf({{kWhole}, {}}, 1);
  options_.plan.nodes[1].copies = {kWhole};
  Connect();
  for (int i = 0; i < 3; ++i) {
    ExpectTheSameBits();
  }
  nodes_[0]->backend().Block(true);
  nodes_[1]->backend().Block(true);
  std::thread killer([this] {
    while (nodes_[1]->backend().calls() == 0) {
      std::this_thread::yield();
    }
    nodes_[1]->Kill();
  });
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr(absl::StrCat("node a at ", nodes_[0]->address(), " lives"))));
  killer.join();
  nodes_[0]->backend().Block(false);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, RowsAreCutAnewForANodeThatComesBackSmaller) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  nodes_[1]->Kill();
  nodes_[1]->TakeRows(1);
  std::thread starter([this] { nodes_[1]->Start(); });
  ExpectTheSameBits();
  starter.join();
}

TEST_F(PoolBackendTest, ANodeThatComesBackUnderAnotherNameIsRefused) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  nodes_[1]->Kill();
  nodes_[1]->Rename("a");
  nodes_[1]->Start();
  const std::string why = "node b at " + nodes_[1]->address() + ": it called itself so before";
  while (StatusOf(1).last_error.find(why) == std::string::npos) {
    ExpectTheSameBits();
  }
  EXPECT_EQ(StatusOf(1).state, NodeState::kLost);
  EXPECT_EQ(StatusOf(1).name, "b");
}

TEST_F(PoolBackendTest, TheLogHasWhoIsLostRefusedAndThereAgain) {
  Mutex mutex;
  std::vector<std::string> lines;
  options_.log = [&](absl::string_view line) {
    MutexLock lock(&mutex);
    lines.emplace_back(line);
  };
  const auto line = [&](size_t index) {
    for (int i = 0; i < 12000; ++i) {
      {
        MutexLock lock(&mutex);
        if (lines.size() > index) {
          return lines[index];
        }
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return std::string("no line in a minute");
  };
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  const std::string b = "node b at " + nodes_[1]->address();
  nodes_[1]->Kill();
  EXPECT_THAT(line(0), HasSubstr(b + " is lost: "));
  nodes_[1]->Start();
  EXPECT_EQ(line(1), b + " is there again");
  nodes_[1]->Kill();
  EXPECT_THAT(line(2), HasSubstr(b + " is lost: "));
  nodes_[1]->Rename("c");
  nodes_[1]->Start();
  EXPECT_THAT(line(3), AllOf(HasSubstr(b + " is refused: "), HasSubstr("c now")));
  absl::SleepFor(
      absl::Seconds(3));  // it is dialled again every second, and refused for the same reason
  backend_.reset();
  EXPECT_EQ(lines.size(), 4);  // that the pool closes is no news
}

TEST_F(PoolBackendTest, NothingGoesThroughAProxyOfTheEnvironment) {
  constexpr const char* kNames[] = {"grpc_proxy", "https_proxy", "http_proxy"};
  for (const char* name : kNames) {
    ::setenv(name, "http://127.0.0.1:9", 1);  // nobody listens there
  }
  AddNode("a", {kWhole});
  Connect();
  for (const char* name : kNames) {
    ::unsetenv(name);
  }
  ASSERT_NE(backend_, nullptr);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, WithoutACopyACallWaitsForTheNodeToComeBack) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  nodes_[1]->Kill();
  std::thread starter([this] { nodes_[1]->Start(); });
  ExpectTheSameBits();
  starter.join();
}

TEST_F(PoolBackendTest, WithoutACopyTheWaitEndsAndNamesNodeAndUnits) {
  options_.node_wait = absl::Milliseconds(300);
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  nodes_[1]->Kill();
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("units 2-2 of experts 0-13"),
                             HasSubstr(absl::StrCat("b (", nodes_[1]->address(), ")")))));
  // Nothing is kept of the call that failed: the next one is whole again.
  nodes_[1]->Start();
  options_.node_wait = absl::Minutes(1);
  Connect();
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, TheContainersOwnBanksStandInForEveryNode) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect(Local());
  ExpectTheSameBits();
  nodes_[0]->Kill();
  ExpectTheSameBits();
  nodes_[1]->Kill();
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, TheCoordinatorComputesWhatThePlanGivesIt) {
  const UnitLayout& layout = container_->manifest().unit_layout;
  AddNode("a", {kWhole});  // a copy of what the coordinator computes, which is not asked for it
  options_.plan = PlanOf({{Units(0, 2)}}, 1);
  options_.plan.nodes.front().copies = {Units(2, 3)};
  options_.plan.nodes.push_back({"here", std::string(kOwnAddress), {Units(2, 3)}});
  auto local = Local();
  const ExpertBackend& here = *local;
  Connect(std::move(local));
  ExpectTheSameBits();
  const ExpertLayerStats own = here.Stats()[1];
  EXPECT_GT(own.expert_reads, 0);
  const uint64_t first = 2 * layout.unit_bytes / 4096 * 4096;
  const uint64_t last = (3 * layout.unit_bytes + 4095) / 4096 * 4096;
  EXPECT_EQ(own.expert_bytes, static_cast<uint64_t>(own.expert_reads) * (last - first));
  EXPECT_EQ(backend_->Nodes().size(), 1);
  // And the rest too, where the node is gone.
  nodes_[0]->Kill();
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, APlanForTheCoordinatorNeedsItsExperts) {
  AddNode("a", {Units(0, 2)});
  options_.plan = PlanOf({{Units(0, 2)}}, 1);
  options_.plan.nodes.push_back({"here", std::string(kOwnAddress), {Units(2, 3)}});
  EXPECT_THAT(Open(nullptr), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("node here"), HasSubstr("--pool-alone"))));
}

TEST_F(PoolBackendTest, TheCoordinatorIsNoNodeMoreInTheNextPlan) {
  AddNode("a", {kWhole});
  options_.plan = PlanOf({{kWhole}}, 1);
  Connect(Local());
  ExpectTheSameBits();
  PoolPlan next = PlanOf({{Units(1, 3)}}, 2);
  next.nodes.push_back({"here", std::string(kOwnAddress), {Units(0, 1)}});
  SHOAL_ASSERT_OK(backend_->ChangePlan(next, {}));
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, ANodeThatWasLostIsUsedAgainAfterItsProbation) {
  AddNode("a", {kWhole});
  Connect(Local());
  nodes_[0]->Kill();
  ExpectTheSameBits();
  nodes_[0]->Start();
  const int before = nodes_[0]->backend().calls();
  while (nodes_[0]->backend().calls() == before) {
    ExpectTheSameBits();
  }
  EXPECT_EQ(StatusOf(0).state, NodeState::kLive);
}

// As a machine does that was cut off and started again meanwhile: it is there, and no message of
// the old connection arrives, nor that it is gone.
TEST_F(PoolBackendTest, AConnectionThatFellSilentIsReplaced) {
  AddNode("a", {kWhole});
  TcpRelay relay(nodes_[0]->port());
  options_.plan.nodes[0].address = relay.address();
  options_.node_wait = absl::Seconds(30);
  Connect();
  ExpectTheSameBits();
  relay.ForgetConnections();
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(0).losses, 1);
  backend_.reset();
}

TEST_F(PoolBackendTest, AStopEndsACallThatWaits) {
  AddNode("a", {kWhole});
  Connect();
  nodes_[0]->backend().Block(true);
  std::stop_source stop;
  std::thread stopper([&] {
    while (nodes_[0]->backend().calls() == 0) {
      std::this_thread::yield();
    }
    stop.request_stop();
  });
  std::vector<int64_t> out(batch_.rows.size());
  EXPECT_THAT(backend_->Execute(batch_.View(), {&kWhole, 1}, stop.get_token(), out),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  stopper.join();
  nodes_[0]->backend().Block(false);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, AnOutputBeyondTheFixedPointRangeIsAnErrorWhoeverComputesIt) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  for (float& value : batch_.rows) {
    value *= 1e6F;
  }
  std::vector<int64_t> out;
  EXPECT_THAT(Execute(out), StatusIs(absl::StatusCode::kOutOfRange,
                                     AllOf(HasSubstr("node "), HasSubstr("2^17"))));
}

TEST_F(PoolBackendTest, CallsFromSeveralThreadsDoNotDisturbEachOther) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  Connect();
  std::vector<std::thread> callers;
  for (int t = 0; t < 3; ++t) {
    callers.emplace_back([this] {
      for (int i = 0; i < 10; ++i) {
        ExpectTheSameBits();
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
}

TEST_F(PoolBackendTest, LetsTheCallerWorkWhileNodesDo) {
  AddNode("a", {kWhole});
  Connect();
  nodes_[0]->backend().Block(true);
  ExpertBackend::Batch batch = batch_.View();
  int calls = 0;
  // The node answers only after this: it must have been asked before, and not be waited for.
  batch.meanwhile = [&] {
    ++calls;
    while (nodes_[0]->backend().calls() == 0) {
      std::this_thread::yield();
    }
    nodes_[0]->backend().Block(false);
  };
  std::vector<int64_t> out(batch_.rows.size());
  SHOAL_ASSERT_OK(backend_->Execute(batch, {&kWhole, 1}, {}, out));
  EXPECT_EQ(out, expected_);
  EXPECT_EQ(calls, 1);  // though the node takes the rows in two requests
}

TEST_F(PoolBackendTest, LetsTheCallerWorkWhileItComputesHereOrNothingIsWanted) {
  AddNode("a", {kWhole});
  Connect(Local());
  nodes_[0]->Kill();
  while (StatusOf(0).state != NodeState::kLost) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ExpertBackend::Batch batch = batch_.View();
  int calls = 0;
  batch.meanwhile = [&calls] { ++calls; };
  std::vector<int64_t> out(batch_.rows.size());
  SHOAL_ASSERT_OK(backend_->Execute(batch, {&kWhole, 1}, {}, out));
  EXPECT_EQ(out, expected_);
  EXPECT_EQ(calls, 1);
  SHOAL_ASSERT_OK(backend_->Execute(batch, {}, {}, out));
  EXPECT_EQ(calls, 2);
}

TEST_F(PoolBackendTest, GoesOverToAnotherPlanWhileACallIsUnderWay) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  options_.plan = PlanOf({{Units(0, 2)}, {Units(2, 3)}}, 1);
  options_.max_nodes = 3;
  Connect();
  ExpectTheSameBits();
  AddNode("c", {Units(1, 2)});
  const int before = nodes_[0]->backend().calls();
  nodes_[0]->backend().Block(true);
  std::thread caller([this] { ExpectTheSameBits(); });
  while (nodes_[0]->backend().calls() == before) {
    std::this_thread::yield();
  }
  const absl::Status changed =
      backend_->ChangePlan(PlanOf({{Units(0, 1)}, {Units(2, 3)}, {Units(1, 2)}}, 2), {});
  nodes_[0]->backend().Block(false);
  caller.join();
  SHOAL_ASSERT_OK(changed);
  EXPECT_EQ(backend_->plan().epoch, 2);
  EXPECT_EQ(StatusOf(2).requests, 0);  // that call was one of the old plan
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(2).requests, 2);
}

TEST_F(PoolBackendTest, ACallThatCannotGoOnByItsPlanGoesOnByTheNext) {
  AddNode("a", {kWhole});
  options_.plan = PlanOf({{kWhole}}, 1);
  options_.max_nodes = 2;
  Connect();
  ExpectTheSameBits();
  AddNode("b", {kWhole});
  PoolPlan next = PlanOf({{}, {kWhole}}, 2);
  next.nodes.erase(next.nodes.begin());
  nodes_[0]->backend().Block(true);  // alive, and will never answer
  std::thread caller([this] { ExpectTheSameBits(); });
  while (nodes_[0]->backend().calls() < 3) {
    std::this_thread::yield();
  }
  const absl::Status changed = backend_->ChangePlan(next, {});
  if (!changed.ok()) {
    nodes_[0]->backend().Block(false);
  }
  caller.join();
  SHOAL_EXPECT_OK(changed);
  EXPECT_EQ(StatusOf(0).name, "b");
  EXPECT_EQ(StatusOf(0).requests, 2);
}

TEST_F(PoolBackendTest, ACallThatWaitsForALostNodeGoesOnByTheNextPlan) {
  AddNode("a", {kWhole});
  options_.plan = PlanOf({{kWhole}}, 1);
  Connect();
  ExpectTheSameBits();
  AddNode("b", {kWhole});
  PoolPlan next = PlanOf({{}, {kWhole}}, 2);
  next.nodes.erase(next.nodes.begin());
  nodes_[0]->Kill();
  std::thread caller([this] { ExpectTheSameBits(); });
  const absl::Status changed = backend_->ChangePlan(next, {});
  caller.join();
  SHOAL_EXPECT_OK(changed);
}

TEST_F(PoolBackendTest, ADrainedNodeStaysDrainedUnderTheNextPlan) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  options_.plan = PlanOf({{Units(0, 2)}, {Units(2, 3)}}, 1);
  Connect();
  SHOAL_ASSERT_OK(backend_->DrainNode("a", absl::Seconds(10), {}));
  SHOAL_ASSERT_OK(backend_->ChangePlan(PlanOf({{Units(0, 1)}, {Units(1, 3)}}, 2), {}));
  EXPECT_EQ(StatusOf(0).state, NodeState::kDrained);
  EXPECT_EQ(StatusOf(1).state, NodeState::kLive);
}

TEST_F(PoolBackendTest, KeepsThePlanInForceWhereTheNextOneIsNotFitToServe) {
  AddNode("a", {kWhole});
  AddNode("b", {Units(1, 2)});
  options_.plan = PlanOf({{kWhole}}, 3);
  options_.max_nodes = 2;
  options_.connect_wait = absl::Milliseconds(500);
  Connect();
  EXPECT_THAT(backend_->ChangePlan(PlanOf({{kWhole}}, 3), {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("has the epoch 3"), HasSubstr("in force has 3"))));
  EXPECT_THAT(backend_->ChangePlan(PlanOf({{Units(1, 3)}, {Units(0, 1)}}, 4), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("node b"), HasSubstr("it lacks"))));
  PoolPlan next = PlanOf({{Units(0, 1), Units(2, 3)}, {Units(1, 2)}}, 4);
  nodes_[1]->Kill();
  EXPECT_THAT(backend_->ChangePlan(next, {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("without an answer"), HasSubstr("b at"))));
  next.identity.clear();
  EXPECT_THAT(backend_->ChangePlan(next, {}), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("not to a list of addresses")));
  AddNode("c", {kWhole});
  EXPECT_THAT(backend_->ChangePlan(PlanOf({{Units(0, 1)}, {Units(1, 2)}, {Units(2, 3)}}, 4), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was planned for 2")));
  EXPECT_EQ(backend_->plan().epoch, 3);
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, ADrainedNodeIsLeftAlone) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  ExpectTheSameBits();
  SHOAL_ASSERT_OK(backend_->DrainNode("a", absl::Seconds(10), {}));
  EXPECT_EQ(StatusOf(0).state, NodeState::kDrained);
  const int64_t before = StatusOf(0).requests;
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(0).requests, before);
  EXPECT_THAT(backend_->DrainNode("b", absl::Seconds(10), {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("node b alone holds"), HasSubstr("--copies 2"))));
  EXPECT_THAT(backend_->DrainNode("z", absl::Seconds(10), {}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("it has a, b")));
  SHOAL_ASSERT_OK(backend_->UndrainNode("a"));
  ExpectTheSameBits();
  EXPECT_GT(StatusOf(0).requests, before);
}

TEST_F(PoolBackendTest, ADrainedNodeIsAskedForWhatNobodyElseCanDo) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  SHOAL_ASSERT_OK(backend_->DrainNode("a", absl::Seconds(10), {}));
  nodes_[1]->Kill();
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, SaysThatADrainedNodeIsStillAtWork) {
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  Connect();
  nodes_[0]->backend().Block(true);
  std::thread caller([this] { ExpectTheSameBits(); });
  while (nodes_[0]->backend().calls() == 0) {
    std::this_thread::yield();
  }
  EXPECT_THAT(backend_->DrainNode("a", absl::ZeroDuration(), {}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("still at work")));
  nodes_[0]->backend().Block(false);
  caller.join();
  SHOAL_EXPECT_OK(backend_->DrainNode("a", absl::Seconds(10), {}));
}

TEST_F(PoolBackendTest, RefusesAPoolThatLeavesUnitsUncovered) {
  AddNode("a", {Units(0, 1)});
  AddNode("b", {Units(2, 3)});
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable,
                               HasSubstr("no node holds units 1-1 of experts 0-13")));
}

TEST_F(PoolBackendTest, NamesTheMembersThatDidNotAnswer) {
  options_.connect_wait = absl::Milliseconds(500);
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  nodes_[1]->Kill();
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr("units 2-2"), HasSubstr(nodes_[1]->address()))));
}

TEST_F(PoolBackendTest, DoesNotWaitLongForNodesThatItCanDoWithout) {
  options_.connect_wait = absl::Hours(24);
  options_.grace_wait = absl::Milliseconds(100);
  AddNode("a", {kWhole});
  AddNode("b", {kWhole});
  nodes_[1]->Kill();
  Connect();
  ExpectTheSameBits();
  EXPECT_EQ(StatusOf(1).state, NodeState::kLost);
  nodes_[0]->Kill();
  Connect(Local());
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, WaitsLongerForNodesThatHoldWhatNobodyElseDoes) {
  options_.grace_wait = absl::Milliseconds(100);
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  nodes_[1]->Kill();
  std::thread starter([this] {
    // Longer than it would be waited for if others held its units.
    std::this_thread::sleep_for(std::chrono::seconds(1));
    nodes_[1]->Start();
  });
  Connect();
  starter.join();
  ExpectTheSameBits();
}

TEST_F(PoolBackendTest, RefusesTwoNodesOfOneName) {
  AddNode("a", {Units(0, 2)});
  AddNode("a", {Units(2, 3)});
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("two nodes call themselves a")));
}

TEST_F(PoolBackendTest, RefusesANodeThatLacksWhatThePlanGivesIt) {
  AddNode("a", {Units(0, 2)});
  AddNode("b", {Units(2, 3)});
  options_.plan.nodes[0].slices = {Units(0, 1)};
  options_.plan.nodes[1].slices = {Units(1, 3)};
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("node b"), HasSubstr("it lacks units 1-1"))));
}

TEST_F(PoolBackendTest, APlanIsCheckedBeforeAnyNodeIsAsked) {
  options_.plan.identity = container_->manifest().identity;
  options_.plan.nodes = {{"a", "127.0.0.1:1", {Units(0, 1)}}, {"b", "127.0.0.1:2", {Units(2, 3)}}};
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("units 1-1 of experts 0-13 are computed by no node")));
  options_.plan.nodes[1] = {"b", "", {Units(1, 3)}};
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                               HasSubstr("node b of the pool has no address")));
  options_.plan.identity = std::string(64, '0');
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("identity")));
}

TEST_F(PoolBackendTest, RefusesANodeOfAnotherContainerAndNamesBoth) {
  ConvertOptions options;
  options.seed = 7;
  SHOAL_ASSERT_OK(Convert(*dir_ / "checkpoint", *dir_ / "other", options, nullptr, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, Container::Open(*dir_ / "other"));
  TestNode node(*other, "a", {kWhole});
  options_.plan.nodes.push_back({"", node.address()});
  EXPECT_THAT(Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr(node.address()), HasSubstr("identity"),
                                     HasSubstr(other->manifest().identity),
                                     HasSubstr(container_->manifest().identity))));
}

}  // namespace
}  // namespace shoal

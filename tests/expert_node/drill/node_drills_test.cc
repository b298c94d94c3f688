// Drills on a real backend, and the service that begins them.
#include "expert_node/drill/node_drills.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/convert/converter.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/node_probe.h"
#include "expert_node/service/drill_service.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/drill.grpc.pb.h"
#include "shoal/v1/types.pb.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::kLayer;
using ::shoal::testing::kNumExperts;
using ::shoal::testing::kPerToken;
using ::shoal::testing::kWhole;
using ::shoal::testing::MakeBatch;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::shoal::testing::TestBatch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// So that a test that would hang fails.
constexpr std::chrono::seconds kDeadline{60};

class NodeDrillsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = std::make_unique<TempDir>();
    SmallCheckpoint().WriteTo(*models_ / "checkpoint");
    ConvertOptions options;
    options.experts = ExpertCodec::kF32;
    SHOAL_ASSERT_OK(Convert(*models_ / "checkpoint", *models_ / "model", options, nullptr, {}));
  }
  static void TearDownTestSuite() { models_.reset(); }

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(experts_, OpenNodeExperts(*models_ / "model"));
    drills_ = std::make_unique<NodeDrills>(0, Clock::Real());
    local_ = Backend(experts_.slices);
  }

  std::unique_ptr<LocalExpertBackend> Backend(const std::vector<SliceSource>& slices) {
    LocalExpertBackend::Options options;
    options.cache_records = kNumExperts;
    options.wrap_reader = drills_->wrap_reader();
    auto backend = LocalExpertBackend::Open(experts_.model, slices, options, pool_, Clock::Real());
    EXPECT_THAT(backend, testing::IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  absl::StatusOr<std::vector<int64_t>> Execute(ExpertBackend& backend, const ExpertSlice& slice) {
    const TestBatch batch = MakeBatch(1);
    std::vector<int64_t> out(batch.rows.size());
    const absl::Status status = backend.Execute(batch.View(), {&slice, 1}, {}, out);
    return status.ok() ? absl::StatusOr<std::vector<int64_t>>(out) : status;
  }

  // Serves the drills; requests that are noted, and kills that were asked for, are kept.
  void Serve() {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        units_, HeldUnits::Open(experts_.model.layout, experts_.slices, drills_->wrap_reader()));
    NodeService::Options options;
    options.name = "node";
    options.directory = *models_ / "model";
    SHOAL_ASSERT_OK_AND_ASSIGN(
        service_, NodeService::Create(*local_, experts_.model, MakeTerms(experts_.manifest),
                                      *units_, options, Clock::Real()));
    drill_service_ = std::make_unique<DrillService>(
        *drills_, DrillService::Options{[this](const std::string& text) { notes_.push_back(text); },
                                        [this] { ++kills_; }});
    SHOAL_ASSERT_OK_AND_ASSIGN(
        server_, NodeServer::Start(*service_, {"127.0.0.1", 0}, drill_service_.get()));
  }
  static absl::Status Start(const NodeServer& server, const v1::DrillRequest& request) {
    const auto stub = v1::Drill::NewStub(
        grpc::CreateChannel(server.address().ToString(), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    v1::DrillReply reply;
    return FromGrpcStatus(stub->Start(&context, request, &reply));
  }

  static std::unique_ptr<TempDir> models_;
  NodeExperts experts_;
  ThreadPool pool_{2};
  std::unique_ptr<NodeDrills> drills_;
  std::unique_ptr<LocalExpertBackend> local_;
  std::unique_ptr<HeldUnits> units_;
  std::unique_ptr<NodeService> service_;
  std::vector<std::string> notes_;
  int kills_ = 0;
  std::unique_ptr<DrillService> drill_service_;
  std::unique_ptr<NodeServer> server_;
};
std::unique_ptr<TempDir> NodeDrillsTest::models_;

TEST_F(NodeDrillsTest, ADamagedRecordIsNamedAndNeverGetsIntoTheCache) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> sums, Execute(*local_, kWhole));
  local_ = Backend(experts_.slices);  // with an empty cache
  drills_->corrupt().Begin(1);
  EXPECT_THAT(Execute(*local_, kWhole),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("layer-00002.bank"), HasSubstr("expert"),
                             HasSubstr("unit 0: checksum"), HasSubstr("was read twice"))));
  // The same record again: read, whole, and the sums are those of before.
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> again, Execute(*local_, kWhole));
  EXPECT_EQ(again, sums);
}

TEST_F(NodeDrillsTest, DamagesAsManyRecordsAsItWasAsked) {
  drills_->corrupt().Begin(kPerToken);
  int damaged = 0;
  // One record a call.
  for (int32_t expert = 0; expert < kNumExperts; ++expert) {
    const ExpertSlice one{{0, 3}, {expert, expert + 1}};
    TestBatch batch = MakeBatch(1);
    batch.ids = {expert, (expert + 1) % static_cast<int32_t>(kNumExperts),
                 (expert + 2) % static_cast<int32_t>(kNumExperts)};
    std::vector<int64_t> out(batch.rows.size());
    damaged += absl::IsDataLoss(local_->Execute(batch.View(), {&one, 1}, {}, out)) ? 1 : 0;
  }
  EXPECT_EQ(damaged, kPerToken);
}

TEST_F(NodeDrillsTest, WhatIsInTheCacheIsNotDamaged) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> sums, Execute(*local_, kWhole));
  drills_->corrupt().Begin(10'000);
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::vector<int64_t> again, Execute(*local_, kWhole));
  EXPECT_EQ(again, sums);
}

// Where a read begins before the slice's first unit, the damage is still in what is checked.
TEST_F(NodeDrillsTest, DamageReachesTheUnitsOfASlice) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(*models_ / "model"));
  const ExpertSlice slice{{2, 3}, {0, kNumExperts}};
  const auto backend = Backend({SliceOfContainer(*container, slice)});
  drills_->corrupt().Begin(1);
  EXPECT_THAT(Execute(*backend, slice),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("unit 2: checksum")));
}

TEST_F(NodeDrillsTest, CopiesInBulkAreDamagedToo) {
  Serve();
  drills_->corrupt().Begin(1);
  std::string bytes;
  EXPECT_THAT(units_->Read({kLayer, 5}, {0, 3}, &bytes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expert 5")));
  SHOAL_EXPECT_OK(units_->Read({kLayer, 5}, {0, 3}, &bytes));
}

TEST_F(NodeDrillsTest, TheMeasurementAtStartSeesTheThrottle) {
  // Far below any disk, and one record takes a fraction of a second.
  constexpr uint64_t kRate = 2'000'000;
  NodeDrills throttled(kRate, Clock::Real());
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto units,
      HeldUnits::Open(experts_.model.layout, experts_.slices, throttled.wrap_reader()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const uint64_t rate,
                             MeasureReadRate(*units, absl::Milliseconds(50), Clock::Real()));
  // However slow the machine is, not faster than allowed.
  EXPECT_LE(rate, kRate);
  EXPECT_GT(rate, 0U);
}

TEST_F(NodeDrillsTest, TheServiceBeginsAndEndsDrills) {
  Serve();
  v1::DrillRequest slow;
  slow.mutable_slow()->set_factor(50);
  slow.mutable_slow()->set_duration_ms(600'000);
  SHOAL_ASSERT_OK(Start(*server_, slow));
  EXPECT_EQ(drills_->slowdown().Rest(absl::Milliseconds(1)), absl::Milliseconds(49));
  v1::DrillRequest corrupt;
  corrupt.mutable_corrupt()->set_records(3);
  SHOAL_ASSERT_OK(Start(*server_, corrupt));
  EXPECT_THAT(Execute(*local_, kWhole), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("unit")));
  v1::DrillRequest end;
  end.mutable_end();
  SHOAL_ASSERT_OK(Start(*server_, end));
  EXPECT_EQ(drills_->slowdown().Rest(absl::Milliseconds(1)), absl::ZeroDuration());
  SHOAL_EXPECT_OK(Execute(*local_, kWhole).status());
  EXPECT_EQ(kills_, 0);
  v1::DrillRequest kill;
  kill.mutable_kill();
  SHOAL_ASSERT_OK(Start(*server_, kill));
  EXPECT_EQ(kills_, 1);
  EXPECT_THAT(notes_,
              ElementsAre("drill: every layer takes 50 times its time, for 600000 ms",
                          "drill: the next 3 records are damaged", "drill: over", "drill: killed"));
}

TEST(NodeDrillsDeathTest, AKillIsOneThatNobodyCanCatch) {
  EXPECT_EXIT(DrillService::KillProcess(), ::testing::KilledBySignal(SIGKILL), "");
}

TEST_F(NodeDrillsTest, TheServiceRefusesWhatIsOutsideItsBounds) {
  Serve();
  const auto refused = [](const std::string& words) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words));
  };
  EXPECT_THAT(Start(*server_, {}), refused("kind is absent"));
  v1::DrillRequest request;
  for (const uint32_t factor : {0U, 1U, 1001U}) {
    request.mutable_slow()->set_factor(factor);
    request.mutable_slow()->set_duration_ms(1000);
    EXPECT_THAT(Start(*server_, request), refused("slow.factor is"));
  }
  for (const uint32_t duration_ms : {0U, 600'001U}) {
    request.mutable_slow()->set_factor(2);
    request.mutable_slow()->set_duration_ms(duration_ms);
    EXPECT_THAT(Start(*server_, request), refused("slow.duration_ms is"));
  }
  for (const uint32_t records : {0U, 10'001U}) {
    request.mutable_corrupt()->set_records(records);
    EXPECT_THAT(Start(*server_, request), refused("corrupt.records is"));
  }
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(NodeDrillsTest, ANodeThatAllowsNoDrillsHasNoSuchService) {
  Serve();
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto plain, NodeServer::Start(*service_, {"127.0.0.1", 0}));
  v1::DrillRequest kill;
  kill.mutable_kill();
  EXPECT_THAT(Start(*plain, kill), StatusIs(absl::StatusCode::kUnimplemented, ::testing::_));
}

}  // namespace
}  // namespace shoal

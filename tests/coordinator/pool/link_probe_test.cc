// Measuring a link: what is subtracted, against a node that says what it took.
#include "coordinator/pool/link_probe.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/synth/synthesize.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/types.pb.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(PercentileOfTest, TakesTheNearestRank) {
  std::vector<absl::Duration> times;
  for (int i = 20; i > 0; --i) {
    times.push_back(absl::Milliseconds(i));
  }
  EXPECT_EQ(PercentileOf(times, 50), absl::Milliseconds(10));
  EXPECT_EQ(PercentileOf(times, 95), absl::Milliseconds(19));
  EXPECT_EQ(PercentileOf(times, 100), absl::Milliseconds(20));
  std::vector<absl::Duration> one = {absl::Seconds(3)};
  EXPECT_EQ(PercentileOf(one, 50), absl::Seconds(3));
  EXPECT_EQ(PercentileOf(one, 95), absl::Seconds(3));
}

class LinkProbeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = std::make_unique<TempDir>();
    SynthOptions options;
    options.shape = {.like = "tiny", .num_layers = 2, .num_experts = 6, .vocab_size = 512};
    SHOAL_ASSERT_OK(Synthesize(*models_ / "model", options, nullptr, {}));
    options.seed = 1;
    SHOAL_ASSERT_OK(Synthesize(*models_ / "other", options, nullptr, {}));
  }
  static void TearDownTestSuite() { models_.reset(); }

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(experts_, OpenNodeExperts(*models_ / "model"));
    LocalExpertBackend::Options backend;
    backend.cache_records = 6;
    SHOAL_ASSERT_OK_AND_ASSIGN(local_, LocalExpertBackend::Open(experts_.model, experts_.slices,
                                                                backend, pool_, Clock::Real()));
    SHOAL_ASSERT_OK_AND_ASSIGN(units_, HeldUnits::Open(experts_.model.layout, experts_.slices));
    NodeService::Options options;
    options.name = "attic";
    options.directory = *models_ / "model";
    options.max_rows = 100;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        service_, NodeService::Create(*local_, experts_.model, MakeTerms(experts_.manifest),
                                      *units_, options, Clock::Real()));
    SHOAL_ASSERT_OK_AND_ASSIGN(server_, NodeServer::Start(*service_, {"127.0.0.1", 0}));
  }

  absl::StatusOr<LinkMeasurement> Measure(const Manifest& manifest, const std::string& address,
                                          std::stop_token stop = {}) {
    LinkProbeOptions options;
    options.round_trips = 20;
    options.batches = 3;
    return MeasureLink(manifest, address, options, Clock::Real(), std::move(stop));
  }
  std::string Address() const { return server_->address().ToString(); }

  static std::unique_ptr<TempDir> models_;
  NodeExperts experts_;
  ThreadPool pool_{2};
  std::unique_ptr<LocalExpertBackend> local_;
  std::unique_ptr<HeldUnits> units_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<NodeServer> server_;
};
std::unique_ptr<TempDir> LinkProbeTest::models_;

TEST_F(LinkProbeTest, MeasuresANodeThatServes) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const LinkMeasurement link, Measure(experts_.manifest, Address()));
  EXPECT_EQ(link.name, "attic");
  EXPECT_EQ(link.address, Address());
  EXPECT_EQ(link.round_trips, 20);
  EXPECT_GT(link.round_trip_p50, absl::ZeroDuration());
  EXPECT_GE(link.round_trip_p95, link.round_trip_p50);
  // The node takes 100 rows of 192 at a time: 4 bytes an element there, 8 back.
  EXPECT_EQ(link.batch_rows, 100);
  EXPECT_EQ(link.sent_bytes, 76'800U);
  EXPECT_EQ(link.received_bytes, 153'600U);
  // Whether a rate can be told depends on the machine.
  EXPECT_GT(link.send_bytes_per_second.value_or(1), 0);
  EXPECT_GT(link.receive_bytes_per_second.value_or(1), 0);
}

TEST_F(LinkProbeTest, NamesWhatDiffersInAForeignNode) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto other, Container::Open(*models_ / "other"));
  EXPECT_THAT(Measure(other->manifest(), Address()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(Address()), HasSubstr("identity"))));
}

TEST_F(LinkProbeTest, NamesANodeThatIsNotThere) {
  const std::string address = Address();
  server_.reset();
  EXPECT_THAT(Measure(experts_.manifest, address),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(address)));
}

TEST_F(LinkProbeTest, StopsWhenItIsToldTo) {
  std::stop_source source;
  source.request_stop();
  EXPECT_THAT(Measure(experts_.manifest, Address(), source.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr(Address())));
}

}  // namespace
}  // namespace shoal

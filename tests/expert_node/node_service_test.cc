// The service ExpertNode as a client sees it: a real server on loopback, real streams.
#include "expert_node/service/node_service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/convert/converter.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.grpc.pb.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/health_watch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::HealthWatch;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ::shoal::testing::kHiddenSize;
using ::shoal::testing::kLayer;
using ::shoal::testing::kNumExperts;
using ::shoal::testing::kNumUnits;
using ::shoal::testing::kPerToken;
using ::shoal::testing::kWhole;

constexpr int64_t kMaxRows = 8;
constexpr int kMaxQueued = 3;

// So that a test that would hang fails.
constexpr std::chrono::seconds kDeadline{60};

// Computes nothing until it is told to; a layer's sums are then all its request's first id.
class BlockingBackend final : public ExpertBackend {
 public:
  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> /*slices*/,
                       std::stop_token stop, std::span<int64_t> out) override {
    std::unique_lock<std::mutex> lock(mutex_);
    ++started_;
    changed_.notify_all();
    if (!changed_.wait(lock, stop, [this] { return allowed_ > 0; })) {
      ++stopped_;
      changed_.notify_all();
      return absl::CancelledError("stopped");
    }
    --allowed_;
    std::fill(out.begin(), out.end(), batch.expert_ids[0]);
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return {}; }

  void Allow(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += count;
    changed_.notify_all();
  }
  void WaitForStarted(int count) {
    Wait([this, count] { return started_ >= count; });
  }
  void WaitForStopped(int count) {
    Wait([this, count] { return stopped_ >= count; });
  }
  int started() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return started_;
  }

 private:
  void Wait(const std::function<bool()>& condition) {
    std::unique_lock<std::mutex> lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kDeadline, condition));
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  int allowed_ = 0;
  int started_ = 0;
  int stopped_ = 0;
};

// One Execute stream of a client.
class Client {
 public:
  explicit Client(v1::ExpertNode::Stub& stub) {
    context_.set_deadline(std::chrono::system_clock::now() + kDeadline);
    stream_ = stub.Execute(&context_);
  }
  ~Client() {
    if (stream_ != nullptr) {
      context_.TryCancel();
      Finish().IgnoreError();
    }
  }

  bool Send(const v1::ExecuteRequest& request) { return stream_->Write(request); }
  void SendPing(uint64_t id) {
    v1::ExecuteRequest request;
    request.mutable_ping()->set_id(id);
    EXPECT_TRUE(Send(request));
  }
  v1::ExecuteReply Receive() {
    v1::ExecuteReply reply;
    EXPECT_TRUE(stream_->Read(&reply));
    return reply;
  }
  bool ReceivesNothing() {
    v1::ExecuteReply reply;
    return !stream_->Read(&reply);
  }
  void Cancel() { context_.TryCancel(); }
  void SayNoMore() { stream_->WritesDone(); }
  // Reads what is left; how the stream ended.
  absl::Status Finish() {
    v1::ExecuteReply reply;
    while (stream_->Read(&reply)) {
    }
    const grpc::Status status = stream_->Finish();
    stream_.reset();
    return FromGrpcStatus(status);
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteReply>> stream_;
};

v1::ExecuteRequest LayerOf(uint64_t id, int64_t num_rows,
                           const std::vector<ExpertSlice>& slices = {kWhole}) {
  v1::ExecuteRequest request;
  v1::LayerRequest& layer = *request.mutable_layer();
  layer.set_id(id);
  layer.set_epoch(1);
  layer.set_layer(kLayer);
  for (const ExpertSlice& slice : slices) {
    ToMessage(slice, layer.add_slices());
  }
  for (int64_t i = 0; i < num_rows * kHiddenSize; ++i) {
    layer.add_rows(static_cast<float>(std::sin(static_cast<double>(i) * 1.7 + id)));
  }
  for (int64_t i = 0; i < num_rows * kPerToken; ++i) {
    layer.add_expert_ids(static_cast<uint32_t>((id + i * 4) % kNumExperts));
    layer.add_expert_weights(0.25F + 0.125F * static_cast<float>(i % 5));
  }
  return request;
}

class NodeServiceTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = std::make_unique<TempDir>();
    SmallCheckpoint().WriteTo(*models_ / "checkpoint");
    ConvertOptions options;
    options.experts = ExpertCodec::kF32;
    SHOAL_ASSERT_OK(Convert(*models_ / "checkpoint", Model(), options, nullptr, {}));
  }
  static void TearDownTestSuite() { models_.reset(); }
  static std::string Model() { return *models_ / "model"; }

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(experts_, OpenNodeExperts(Model()));
    LocalExpertBackend::Options options;
    options.cache_records = kNumExperts;
    SHOAL_ASSERT_OK_AND_ASSIGN(local_, LocalExpertBackend::Open(experts_.model, experts_.slices,
                                                                options, pool_, Clock::Real()));
  }

  // Serves `backend`; `held` in place of everything.
  void Serve(ExpertBackend& backend, const std::vector<ExpertSlice>& held = {kWhole}) {
    auto container = Container::Open(Model());
    ASSERT_THAT(container, testing::IsOk());
    std::vector<SliceSource> sources;
    for (const ExpertSlice& slice : held) {
      sources.push_back(SliceOfContainer(**container, slice));
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(units_, HeldUnits::Open(experts_.model.layout, sources));
    options_.name = "node";
    options_.max_rows = kMaxRows;
    options_.max_queued_layers = kMaxQueued;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        service_, NodeService::Create(backend, experts_.model, MakeTerms(experts_.manifest),
                                      *units_, options_, Clock::Real()));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        server_, NodeServer::Start(*service_, {"127.0.0.1", 0}, nullptr, {}, patience_));
    stub_ = NewStub();
  }
  std::unique_ptr<v1::ExpertNode::Stub> NewStub() {
    return v1::ExpertNode::NewStub(
        grpc::CreateChannel(server_->address().ToString(), grpc::InsecureChannelCredentials()));
  }

  // gRPC reads so little ahead that a message is too much.
  std::unique_ptr<v1::ExpertNode::Stub> StubThatReadsLittle() {
    grpc::ChannelArguments little;
    little.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64);
    little.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::ExpertNode::NewStub(grpc::CreateCustomChannel(
        server_->address().ToString(), grpc::InsecureChannelCredentials(), little));
  }

  v1::ExecuteRequest Hello() const {
    v1::ExecuteRequest request;
    *request.mutable_hello()->mutable_terms() = MakeTerms(experts_.manifest);
    request.mutable_hello()->set_epoch(1);
    return request;
  }
  std::unique_ptr<Client> Greeted() {
    auto client = std::make_unique<Client>(*stub_);
    EXPECT_TRUE(client->Send(Hello()));
    EXPECT_TRUE(client->Receive().has_welcome());
    return client;
  }
  // How a stream ends after the greeting and this message.
  absl::Status EndAfter(const v1::ExecuteRequest& request) {
    const auto client = Greeted();
    client->Send(request);
    return client->Finish();
  }

  std::vector<int64_t> Direct(const v1::LayerRequest& layer) {
    const std::vector<int32_t> ids(layer.expert_ids().begin(), layer.expert_ids().end());
    const std::vector<float> rows(layer.rows().begin(), layer.rows().end());
    const std::vector<float> weights(layer.expert_weights().begin(), layer.expert_weights().end());
    std::vector<ExpertSlice> slices;
    for (const v1::ExpertSlice& slice : layer.slices()) {
      slices.push_back(*FromMessage(slice, "slice"));
    }
    std::vector<int64_t> sums(rows.size());
    SHOAL_EXPECT_OK(local_->Execute(
        {layer.layer(), static_cast<int64_t>(rows.size()) / kHiddenSize, rows, ids, weights},
        slices, {}, sums));
    return sums;
  }

  static std::unique_ptr<TempDir> models_;
  NodeExperts experts_;
  ThreadPool pool_{2};
  std::unique_ptr<LocalExpertBackend> local_;
  BlockingBackend blocking_;
  NodeService::Options options_;
  StreamPatience patience_;
  std::unique_ptr<HeldUnits> units_;
  std::unique_ptr<NodeService> service_;
  std::unique_ptr<NodeServer> server_;
  std::unique_ptr<v1::ExpertNode::Stub> stub_;
};
std::unique_ptr<TempDir> NodeServiceTest::models_;

TEST_F(NodeServiceTest, SumsHaveTheBackendsBits) {
  Serve(*local_);
  const auto client = Greeted();
  const std::vector<std::vector<ExpertSlice>> parts = {
      {kWhole}, {{{0, 2}, {0, 9}}}, {{{0, 1}, {0, 14}}, {{2, 3}, {3, 4}}}};
  uint64_t id = 0;
  for (const auto& slices : parts) {
    for (const int64_t rows : {int64_t{1}, int64_t{5}, kMaxRows}) {
      const v1::ExecuteRequest request = LayerOf(++id, rows, slices);
      ASSERT_TRUE(client->Send(request));
      const v1::ExecuteReply reply = client->Receive();
      ASSERT_TRUE(reply.has_layer());
      EXPECT_EQ(reply.layer().id(), id);
      EXPECT_FALSE(reply.layer().has_error()) << reply.layer().error().message();
      const std::vector<int64_t> sums(reply.layer().sums().begin(), reply.layer().sums().end());
      EXPECT_EQ(sums, Direct(request.layer()));
      EXPECT_GT(reply.layer().cost().execute_ns(), 0U);
      EXPECT_EQ(reply.layer().cost().expert_hits() + reply.layer().cost().expert_misses() > 0,
                true);
    }
  }
}

TEST_F(NodeServiceTest, ManyRequestsInFlightAreEachAnsweredOnce) {
  options_.num_workers = 2;
  Serve(*local_);
  constexpr uint64_t kRequests = 50;
  const auto client = Greeted();
  std::thread sender([&] {
    for (uint64_t id = 1; id <= kRequests; ++id) {
      EXPECT_TRUE(client->Send(LayerOf(id, 1 + static_cast<int64_t>(id) % kMaxRows)));
    }
  });
  std::map<uint64_t, std::vector<int64_t>> sums;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const v1::ExecuteReply reply = client->Receive();
    sums[reply.layer().id()].assign(reply.layer().sums().begin(), reply.layer().sums().end());
  }
  sender.join();
  ASSERT_EQ(sums.size(), kRequests);
  for (const auto& [id, found] : sums) {
    EXPECT_EQ(found, Direct(LayerOf(id, 1 + static_cast<int64_t>(id) % kMaxRows).layer())) << id;
  }
  client->SayNoMore();
  SHOAL_EXPECT_OK(client->Finish());
}

TEST_F(NodeServiceTest, AStreamWhoseClientSaysNothingIsCut) {
  patience_.read = absl::Milliseconds(100);
  Serve(*local_);
  EXPECT_THAT(Greeted()->Finish(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                            HasSubstr("no message came for 100ms")));
}

TEST_F(NodeServiceTest, AStreamWhoseClientTakesNothingIsCut) {
  patience_.write = absl::Milliseconds(100);
  Serve(*local_);
  const auto idle = StubThatReadsLittle();
  Client client(*idle);
  ASSERT_TRUE(client.Send(Hello()));
  for (uint64_t id = 1; client.Send(LayerOf(id, kMaxRows)); ++id) {  // until nobody is there
  }
  EXPECT_THAT(client.Finish(),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("a message was not taken for")));
}

TEST_F(NodeServiceTest, WelcomeAndDescribeSayWhatTheNodeIs) {
  const ExpertSlice held{{0, 2}, {4, 14}};
  options_.read_bytes_per_second = 7;
  options_.directory = Model();
  Serve(*local_, {held});
  Client client(*stub_);
  ASSERT_TRUE(client.Send(Hello()));
  const v1::DescribeReply welcome = client.Receive().welcome().node();
  EXPECT_EQ(welcome.name(), "node");
  SHOAL_EXPECT_OK(CheckTerms(MakeTerms(experts_.manifest), welcome.terms(), kSeenByCoordinator));
  ASSERT_EQ(welcome.slices_size(), 1);
  EXPECT_EQ(*FromMessage(welcome.slices(0), "slice"), held);
  EXPECT_EQ(welcome.num_layers(), 2U);
  EXPECT_EQ(welcome.max_rows(), kMaxRows);
  EXPECT_EQ(welcome.max_queued_layers(), kMaxQueued);
  EXPECT_EQ(welcome.read_bytes_per_second(), 7U);
  EXPECT_GT(welcome.free_disk_bytes(), 0U);
  EXPECT_FALSE(welcome.draining());
  grpc::ClientContext context;
  v1::DescribeReply described;
  ASSERT_TRUE(stub_->Describe(&context, {}, &described).ok());
  EXPECT_EQ(described.name(), "node");
}

TEST_F(NodeServiceTest, APingIsAnsweredWhileALayerIsComputed) {
  Serve(blocking_);
  const auto client = Greeted();
  ASSERT_TRUE(client->Send(LayerOf(1, 1)));
  blocking_.WaitForStarted(1);
  client->SendPing(77);
  const v1::ExecuteReply reply = client->Receive();
  ASSERT_TRUE(reply.has_pong());
  EXPECT_EQ(reply.pong().id(), 77U);
  blocking_.Allow(1);
  EXPECT_EQ(client->Receive().layer().id(), 1U);
}

TEST_F(NodeServiceTest, AStreamWithAFullQueueIsReadNoFurther) {
  Serve(blocking_);
  const auto client = Greeted();
  for (uint64_t id = 1; id <= kMaxQueued; ++id) {
    ASSERT_TRUE(client->Send(LayerOf(id, 1)));
  }
  client->SendPing(5);
  blocking_.WaitForStarted(1);
  // The queue is full, so the ping waits in the stream: a layer is answered before it.
  blocking_.Allow(1);
  EXPECT_EQ(client->Receive().layer().id(), 1U);
  EXPECT_EQ(client->Receive().pong().id(), 5U);
  blocking_.Allow(kMaxQueued - 1);
  const uint64_t next = client->Receive().layer().id();
  const uint64_t last = client->Receive().layer().id();
  EXPECT_THAT(std::vector<uint64_t>({next, last}), ::testing::UnorderedElementsAre(2, 3));
}

TEST_F(NodeServiceTest, RepliesComeInTheOrderOfCompletion) {
  options_.num_workers = 2;
  // Two run at once, and which one is let go first is decided by the layer's first expert id.
  class FirstComeLast final : public ExpertBackend {
   public:
    absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> /*slices*/,
                         std::stop_token /*stop*/, std::span<int64_t> /*out*/) override {
      std::unique_lock<std::mutex> lock(mutex_);
      if (batch.expert_ids[0] == 1) {
        EXPECT_TRUE(changed_.wait_for(lock, kDeadline, [this] { return second_done_; }));
      }
      return absl::OkStatus();
    }
    std::vector<ExpertLayerStats> Stats() const override { return {}; }
    void LetFirstGo() {
      const std::lock_guard<std::mutex> lock(mutex_);
      second_done_ = true;
      changed_.notify_all();
    }

   private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool second_done_ = false;
  } backend;
  Serve(backend);
  const auto client = Greeted();
  ASSERT_TRUE(client->Send(LayerOf(1, 1)));
  ASSERT_TRUE(client->Send(LayerOf(2, 1)));
  EXPECT_EQ(client->Receive().layer().id(), 2U);
  backend.LetFirstGo();
  EXPECT_EQ(client->Receive().layer().id(), 1U);
}

TEST_F(NodeServiceTest, ACancelledStreamStopsItsWork) {
  Serve(blocking_);
  {
    const auto client = Greeted();
    ASSERT_TRUE(client->Send(LayerOf(1, 1)));
    ASSERT_TRUE(client->Send(LayerOf(2, 1)));
    blocking_.WaitForStarted(1);
    client->Cancel();
    EXPECT_THAT(client->Finish(), StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  }
  blocking_.WaitForStopped(1);
  EXPECT_TRUE(service_->WaitUntilDrained(absl::Minutes(1)));
  // The second never began, and the node serves on.
  EXPECT_EQ(blocking_.started(), 1);
  blocking_.Allow(1);
  const auto next = Greeted();
  ASSERT_TRUE(next->Send(LayerOf(3, 1)));
  EXPECT_EQ(next->Receive().layer().id(), 3U);
}

TEST_F(NodeServiceTest, AnErrorOfTheBackendIsAnsweredAndTheStreamGoesOn) {
  const ExpertSlice held{{0, 2}, {0, kNumExperts}};
  auto container = Container::Open(Model());
  ASSERT_THAT(container, testing::IsOk());
  LocalExpertBackend::Options options;
  options.cache_records = kNumExperts;
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const auto part,
      LocalExpertBackend::Open(experts_.model, {SliceOfContainer(**container, held)}, options,
                               pool_, Clock::Real()));
  Serve(*part, {held});
  const auto client = Greeted();
  ASSERT_TRUE(client->Send(LayerOf(1, 1, {kWhole})));
  const v1::LayerReply refused = client->Receive().layer();
  EXPECT_EQ(refused.id(), 1U);
  EXPECT_EQ(refused.sums_size(), 0);
  EXPECT_THAT(ErrorFromWire(refused.error().code(), refused.error().message()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("epoch 1"), HasSubstr("not held here"))));
  const v1::ExecuteRequest good = LayerOf(2, 1, {held});
  ASSERT_TRUE(client->Send(good));
  const v1::LayerReply reply = client->Receive().layer();
  EXPECT_FALSE(reply.has_error());
  EXPECT_EQ(std::vector<int64_t>(reply.sums().begin(), reply.sums().end()), Direct(good.layer()));
}

TEST_F(NodeServiceTest, TermsThatDifferAreRefusedByName) {
  Serve(blocking_);
  using Change = std::function<void(v1::Terms*)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"terms.protocol_version differs: this node has 1, the caller has 2; install the newer Shoal "
       "on "
       "the side of this node",
       [](v1::Terms* t) { t->set_protocol_version(2); }},
      {"terms.container.container_version differs: this node has 1, the caller has none",
       [](v1::Terms* t) { t->mutable_container()->clear_container_version(); }},
      {"start the node on the container that its coordinator has",
       [](v1::Terms* t) { t->mutable_container()->set_identity("other"); }},
      {"terms.codec differs: this node has \"f32\", the caller has \"rvq3\"",
       [](v1::Terms* t) { t->set_codec("rvq3"); }},
      {"terms.arithmetic differs: this node has \"exact\" and \"fast\", the caller has none",
       [](v1::Terms* t) { t->clear_arithmetic(); }},
      {"terms.arithmetic differs: this node has \"exact\" and \"fast\", the caller has \"exacter\"",
       [](v1::Terms* t) { t->set_arithmetic("exacter"); }},
      {"terms.kernel_revision differs: this node has 1, the caller has 9; install the newer Shoal "
       "on the "
       "side of this node",
       [](v1::Terms* t) { t->set_kernel_revision(9); }},
  };
  for (const auto& [message, change] : changes) {
    v1::ExecuteRequest hello = Hello();
    change(hello.mutable_hello()->mutable_terms());
    Client client(*stub_);
    client.Send(hello);
    EXPECT_THAT(client.Finish(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(message)));
  }
}

TEST_F(NodeServiceTest, AStreamBeginsWithHelloOnce) {
  Serve(blocking_);
  Client client(*stub_);
  client.Send(LayerOf(1, 1));
  EXPECT_THAT(client.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hello is absent")));
  EXPECT_THAT(EndAfter(Hello()), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hello")));
  v1::ExecuteRequest no_epoch = Hello();
  no_epoch.mutable_hello()->clear_epoch();
  Client other(*stub_);
  other.Send(no_epoch);
  EXPECT_THAT(other.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("hello.epoch")));
}

TEST_F(NodeServiceTest, ABrokenRuleEndsTheStreamNamingTheField) {
  // A stream that has ended for its client is there for a moment longer.
  options_.max_streams = 64;
  Serve(blocking_);
  const auto refuses = [this](const std::string& message,
                              const std::function<void(v1::LayerRequest*)>& change) {
    v1::ExecuteRequest request = LayerOf(1, 2);
    change(request.mutable_layer());
    EXPECT_THAT(EndAfter(request),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refuses("layer.id is 0", [](auto* l) { l->clear_id(); });
  refuses("layer.epoch is 0", [](auto* l) { l->clear_epoch(); });
  refuses("layer.layer is 0", [](auto* l) { l->set_layer(0); });
  refuses("layer.slices has 0", [](auto* l) { l->clear_slices(); });
  refuses("layer.slices has 1025", [](auto* l) {
    for (int i = 0; i < 1024; ++i) {
      l->add_slices();
    }
  });
  refuses("layer.slices.units", [](auto* l) { l->mutable_slices(0)->clear_units(); });
  refuses("layer.slices.experts", [](auto* l) { l->mutable_slices(0)->clear_experts(); });
  refuses("layer.slices", [](auto* l) { l->mutable_slices(0)->mutable_units()->set_end(4); });
  refuses("layer.slices", [](auto* l) { *l->add_slices() = l->slices(0); });
  refuses("layer.rows has 0 rows", [](auto* l) { l->clear_rows(); });
  refuses("layer.rows has 73", [](auto* l) { l->add_rows(0); });
  refuses("layer.rows has 9 rows", [](auto* l) { *l = LayerOf(1, kMaxRows + 1).layer(); });
  refuses("layer.rows holds NaN", [](auto* l) { l->set_rows(3, std::nanf("")); });
  refuses("layer.rows holds NaN", [](auto* l) { l->set_rows(3, -INFINITY); });
  refuses("layer.expert_ids has 7", [](auto* l) { l->add_expert_ids(0); });
  refuses("layer.expert_ids holds 14", [](auto* l) { l->set_expert_ids(1, 14); });
  refuses("layer.expert_ids holds 4294967295", [](auto* l) { l->set_expert_ids(1, 0xffffffff); });
  refuses("layer.expert_weights has 5", [](auto* l) { l->mutable_expert_weights()->RemoveLast(); });
  refuses("layer.expert_weights holds NaN", [](auto* l) { l->set_expert_weights(0, INFINITY); });
  EXPECT_EQ(blocking_.started(), 0);
}

TEST_F(NodeServiceTest, HintsAreCheckedAndNotAnswered) {
  Serve(blocking_);
  v1::ExecuteRequest hint;
  hint.mutable_prefetch()->set_layer(kLayer);
  for (int i = 0; i < 4 * kPerToken; ++i) {
    hint.mutable_prefetch()->add_expert_ids(static_cast<uint32_t>(i));
  }
  const auto client = Greeted();
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client->Send(hint));
  }
  client->SendPing(1);
  EXPECT_TRUE(client->Receive().has_pong());
  v1::ExecuteRequest bad = hint;
  bad.mutable_prefetch()->add_expert_ids(0);
  EXPECT_THAT(EndAfter(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("prefetch.expert_ids has 13")));
  bad = hint;
  bad.mutable_prefetch()->set_expert_ids(0, 14);
  EXPECT_THAT(EndAfter(bad), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("prefetch.expert_ids holds 14")));
  bad = hint;
  bad.mutable_prefetch()->set_layer(0);
  EXPECT_THAT(EndAfter(bad),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("prefetch.layer")));
  EXPECT_THAT(EndAfter({}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kind")));
}

TEST_F(NodeServiceTest, AnIdInFlightIsRefusedAndAnAnsweredOneIsFree) {
  Serve(blocking_);
  const auto client = Greeted();
  blocking_.Allow(1);
  ASSERT_TRUE(client->Send(LayerOf(4, 1)));
  client->Receive();
  ASSERT_TRUE(client->Send(LayerOf(4, 1)));
  blocking_.WaitForStarted(2);
  client->Send(LayerOf(4, 1));
  EXPECT_THAT(client->Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer.id 4")));
}

TEST_F(NodeServiceTest, AMessageLargerThanTheManifestAllowsIsNotTaken) {
  Serve(blocking_);
  EXPECT_THAT(EndAfter(LayerOf(1, 100 * kMaxRows * 36)),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
}

TEST_F(NodeServiceTest, DrainingAnswersWhatWasReadAndRefusesNewStreams) {
  Serve(blocking_);
  const auto idle = Greeted();
  const auto busy = Greeted();
  ASSERT_TRUE(busy->Send(LayerOf(1, 1)));
  blocking_.WaitForStarted(1);
  service_->Drain();
  EXPECT_THAT(idle->Finish(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  Client late(*stub_);
  EXPECT_THAT(late.Finish(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  grpc::ClientContext context;
  v1::DescribeReply described;
  ASSERT_TRUE(stub_->Describe(&context, {}, &described).ok());
  EXPECT_TRUE(described.draining());
  EXPECT_FALSE(service_->WaitUntilDrained(absl::ZeroDuration()));
  blocking_.Allow(1);
  EXPECT_EQ(busy->Receive().layer().id(), 1U);
  EXPECT_THAT(busy->Finish(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("draining")));
  EXPECT_TRUE(service_->WaitUntilDrained(absl::Minutes(1)));
}

TEST_F(NodeServiceTest, WhatIsOpenAfterTheGraceTimeIsCut) {
  Serve(blocking_);
  const auto client = Greeted();
  ASSERT_TRUE(client->Send(LayerOf(1, 1)));
  blocking_.WaitForStarted(1);
  EXPECT_FALSE(server_->Drain(absl::ZeroDuration()));
  blocking_.WaitForStopped(1);
}

TEST_F(NodeServiceTest, OneStreamTooManyIsRefused) {
  options_.max_streams = 1;
  Serve(blocking_);
  const auto client = Greeted();
  Client second(*stub_);
  EXPECT_THAT(second.Finish(),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 streams")));
}

TEST_F(NodeServiceTest, HealthIsServingUntilTheNodeDrains) {
  Serve(blocking_);
  HealthWatch whole(server_->address().ToString(), "");
  HealthWatch service(server_->address().ToString(), "shoal.v1.ExpertNode");
  const std::string of_model = "shoal.v1.ExpertNode/" + experts_.manifest.identity;
  HealthWatch model(server_->address().ToString(), of_model);
  HealthWatch other(server_->address().ToString(), "shoal.v1.ExpertNode/" + std::string(64, '0'));
  EXPECT_EQ(whole.Next(), "\x08\x01");
  EXPECT_EQ(service.Next(), "\x08\x01");
  EXPECT_EQ(model.Next(), "\x08\x01");
  EXPECT_EQ(other.Next(), "\x08\x03");  // SERVICE_UNKNOWN
  const auto busy = Greeted();
  ASSERT_TRUE(busy->Send(LayerOf(1, 1)));
  blocking_.WaitForStarted(1);
  std::thread drain([this] { EXPECT_TRUE(server_->Drain(absl::Minutes(1))); });
  EXPECT_EQ(whole.Next(), "\x08\x02");
  EXPECT_EQ(service.Next(), "\x08\x02");
  EXPECT_EQ(model.Next(), "\x08\x02");
  blocking_.Allow(1);
  EXPECT_EQ(busy->Receive().layer().id(), 1U);
  drain.join();
}

class FetchUnitsTest : public NodeServiceTest {
 protected:
  v1::FetchUnitsRequest RequestFor(const ExpertSlice& slice) const {
    v1::FetchUnitsRequest request;
    *request.mutable_terms() = MakeTerms(experts_.manifest);
    request.set_layer(kLayer);
    ToMessage(slice, request.mutable_slice());
    return request;
  }
  absl::Status Fetch(const v1::FetchUnitsRequest& request,
                     std::map<uint32_t, std::string>* units = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    const auto reader = stub_->FetchUnits(&context, request);
    v1::FetchUnitsReply reply;
    while (reader->Read(&reply)) {
      if (units != nullptr) {
        (*units)[reply.expert()] = reply.units();
      }
    }
    return FromGrpcStatus(reader->Finish());
  }
  // From the bank itself, at the places that docs/format.md gives.
  std::string InBank(int64_t expert, const UnitRange& units) const {
    const UnitLayout& layout = experts_.model.layout;
    std::ifstream bank(Model() + "/" + BankFile(kLayer), std::ios::binary);
    bank.seekg(static_cast<std::streamoff>(expert * layout.record_bytes +
                                           units.begin * layout.unit_bytes));
    std::string bytes(units.size() * layout.unit_bytes, '\0');
    bank.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(bank.good());
    return bytes;
  }
};

TEST_F(FetchUnitsTest, SendsTheBanksBytes) {
  // Held in two pieces, and asked for across them.
  Serve(*local_, {{{0, 2}, {0, 14}}, {{2, 3}, {0, 14}}});
  for (const ExpertSlice& slice :
       std::vector<ExpertSlice>{kWhole, {{1, 3}, {5, 8}}, {{2, 3}, {13, 14}}}) {
    std::map<uint32_t, std::string> units;
    SHOAL_ASSERT_OK(Fetch(RequestFor(slice), &units));
    ASSERT_EQ(units.size(), static_cast<size_t>(slice.experts.size()));
    for (const auto& [expert, bytes] : units) {
      EXPECT_TRUE(bytes == InBank(expert, slice.units)) << expert;
    }
  }
}

TEST_F(FetchUnitsTest, RefusesWhatItDoesNotHold) {
  Serve(*local_, {{{0, 2}, {0, 14}}});
  EXPECT_THAT(Fetch(RequestFor(kWhole)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not held here")));
  v1::FetchUnitsRequest request = RequestFor({{0, 4}, {0, 14}});
  EXPECT_THAT(Fetch(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slice")));
  request = RequestFor({{0, 1}, {0, 1}});
  request.set_layer(0);
  EXPECT_THAT(Fetch(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer")));
  request = RequestFor({{0, 1}, {0, 1}});
  request.mutable_terms()->set_codec("rvq3");
  EXPECT_THAT(Fetch(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("terms.codec")));
  request = RequestFor({{0, 1}, {0, 1}});
  request.clear_slice();
  EXPECT_THAT(Fetch(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slice.units")));
}

// A client that answers pings and takes nothing.
TEST_F(FetchUnitsTest, AClientThatTakesNothingDoesNotKeepItsPlace) {
  options_.max_fetches = 1;
  patience_.write = absl::Milliseconds(200);
  options_.directory = Model();
  Serve(*local_);
  const auto idle = StubThatReadsLittle();
  const auto until_there_is_a_place = [this] {
    absl::Status status;
    do {
      status = Fetch(RequestFor(kWhole));
    } while (absl::IsResourceExhausted(status));
    return status;
  };

  grpc::ClientContext units_context;
  const auto units = idle->FetchUnits(&units_context, RequestFor(kWhole));
  units->WaitForInitialMetadata();
  SHOAL_EXPECT_OK(until_there_is_a_place());
  v1::FetchUnitsReply expert;
  while (units->Read(&expert)) {
  }
  EXPECT_THAT(FromGrpcStatus(units->Finish()), StatusIs(absl::StatusCode::kCancelled, _));

  v1::FetchModelRequest request;
  *request.mutable_terms() = MakeTerms(experts_.manifest);
  request.set_file(v1::MODEL_FILE_MANIFEST);
  absl::Status stalled;
  do {  // again where the place of the copy before was not free yet
    grpc::ClientContext model_context;
    const auto model = idle->FetchModel(&model_context, request);
    model->WaitForInitialMetadata();
    SHOAL_EXPECT_OK(until_there_is_a_place());
    v1::FetchModelReply piece;
    while (model->Read(&piece)) {
    }
    stalled = FromGrpcStatus(model->Finish());
  } while (absl::IsResourceExhausted(stalled));
  EXPECT_THAT(stalled, StatusIs(absl::StatusCode::kCancelled, _));
}

TEST(HoldingsOfTest, RefusesNamesAndSlicesThatAreNone) {
  v1::DescribeReply node;
  node.set_name("a");
  ToMessage({{0, 1}, {0, 14}}, node.add_slices());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto slices, HoldingsOf(node, kWhole));
  EXPECT_THAT(slices, ::testing::ElementsAre(ExpertSlice{{0, 1}, {0, 14}}));
  const auto refuses = [&node](const char* message) {
    EXPECT_THAT(HoldingsOf(node, kWhole),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  node.set_name("a\x1b[2J");
  refuses("is no name");
  node.set_name("a");
  ToMessage({{0, 2}, {0, 1}}, node.add_slices());
  refuses("are given twice");
  *node.mutable_slices(1) = node.slices(0);
  node.mutable_slices(1)->mutable_units()->set_end(9);
  refuses("are not a part of");
  while (node.slices_size() <= 256) {
    node.add_slices();
  }
  refuses("257 slices");
}

TEST(ListenAddressTest, TellsLoopbackFromTheRest) {
  for (const auto& [text, loopback] : std::map<std::string, bool>{{"127.0.0.1:80", true},
                                                                  {"127.9.9.9:80", true},
                                                                  {"localhost:0", true},
                                                                  {"[::1]:7", true},
                                                                  {"0.0.0.0:80", false},
                                                                  {"[::]:80", false},
                                                                  {"10.0.0.1:80", false}}) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const NetAddress address, ParseListenAddress(text));
    EXPECT_EQ(IsLoopback(address), loopback) << text;
  }
  for (const char* text : {"", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000", "host:80",
                           "::1:80", "127.0.0.1:-1", "[127.0.0.1]:80"}) {
    EXPECT_THAT(ParseListenAddress(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("write IP:PORT")))
        << text;
  }
}

TEST_F(NodeServiceTest, APortInUseIsAnErrorThatSaysSo) {
  Serve(blocking_);
  EXPECT_THAT(NodeServer::Start(*service_, server_->address()),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       AllOf(HasSubstr(server_->address().ToString()), HasSubstr("in use"))));
}

}  // namespace
}  // namespace shoal

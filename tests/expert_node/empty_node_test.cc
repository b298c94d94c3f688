// A node that holds nothing yet, and a container that is lent to it, as a client sees them.
#include "expert_node/service/empty_node_server.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/sync_stream.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "common/container/verify.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/node_client.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "expert_node/service/units_server.h"
#include "shoal/v1/expert_node.grpc.pb.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/health_watch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ::shoal::testing::HealthWatch;
using ::shoal::testing::kSmallWhole;
using ::shoal::testing::MakeSmallContainer;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kDeadline{60};  // so that a test that would hang fails
constexpr uint64_t kMessageBytes = uint64_t{1} << 20;

std::string Content(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

class EmptyNodeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    models_ = std::make_unique<TempDir>();
    MakeSmallContainer(models_->path(), ExpertCodec::kRvq3);
  }
  static void TearDownTestSuite() { models_.reset(); }

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(container_, Container::Open(*models_ / "model"));
    SHOAL_ASSERT_OK_AND_ASSIGN(lender_, UnitsServer::Start(*container_, {}, {"127.0.0.1", 0}, {}));
    EmptyNodeServer::Options options;
    options.fill.name = "alpha";
    options.fill.directory = dir_ / "alpha";
    options.address = {"127.0.0.1", 0};
    options.read_bytes_per_second = 11;
    options.on_filled = [this] {
      const std::lock_guard<std::mutex> lock(mutex_);
      filled_ = true;
      changed_.notify_all();
    };
    SHOAL_ASSERT_OK_AND_ASSIGN(node_, EmptyNodeServer::Start(std::move(options)));
  }
  void TearDown() override { node_.reset(); }

  bool WaitUntilFilled() {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, kDeadline, [this] { return filled_; });
  }
  static std::unique_ptr<v1::ExpertNode::Stub> StubOf(const NetAddress& address) {
    return v1::ExpertNode::NewStub(
        grpc::CreateChannel(address.ToString(), grpc::InsecureChannelCredentials()));
  }
  v1::FillRequest Request() const {
    v1::FillRequest request;
    *request.mutable_terms() = MakeTerms(container_->manifest());
    request.set_name("alpha");
    ToMessage({{0, 2}, {0, 14}}, request.add_slices());
    request.add_sources(lender_->address().ToString());
    request.set_manifest_sha256(container_->manifest_sha256());
    return request;
  }
  v1::FetchModelRequest FileRequest(v1::ModelFile file, uint32_t layer = 0) const {
    v1::FetchModelRequest request;
    *request.mutable_terms() = MakeTerms(container_->manifest());
    request.set_file(file);
    request.set_layer(layer);
    return request;
  }
  // How an Execute stream ends after its greeting.
  absl::Status Execute(const NetAddress& address) {
    const auto stub = StubOf(address);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kDeadline);
    const auto stream = stub->Execute(&context);
    v1::ExecuteRequest hello;
    *hello.mutable_hello()->mutable_terms() = MakeTerms(container_->manifest());
    stream->Write(hello);
    v1::ExecuteReply reply;
    EXPECT_FALSE(stream->Read(&reply));
    return FromGrpcStatus(stream->Finish());
  }
  absl::Status FetchUnits(const NetAddress& address) {
    NodeClient client(address.ToString(), kMessageBytes, {});
    v1::FetchUnitsRequest request;
    *request.mutable_terms() = MakeTerms(container_->manifest());
    request.set_layer(1);
    ToMessage(kSmallWhole, request.mutable_slice());
    return client.FetchUnits(request, 3 * container_->manifest().unit_layout.unit_bytes,
                             [](int64_t, absl::string_view) { return absl::OkStatus(); }, {});
  }
  absl::Status Fill(const v1::FillRequest& request) {
    NodeClient client(node_->address().ToString(), kMessageBytes, {});
    return client.Fill(request, [](const v1::FillProgress&) {}, {});
  }

  static std::unique_ptr<TempDir> models_;
  TempDir dir_;
  std::unique_ptr<Container> container_;
  std::unique_ptr<UnitsServer> lender_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool filled_ = false;
  std::unique_ptr<EmptyNodeServer> node_;
};
std::unique_ptr<TempDir> EmptyNodeTest::models_;

TEST_F(EmptyNodeTest, SaysThatItHoldsNothing) {
  NodeClient client(node_->address().ToString(), kMessageBytes, {});
  SHOAL_ASSERT_OK_AND_ASSIGN(const v1::DescribeReply said, client.Describe());
  EXPECT_EQ(said.name(), "alpha");
  EXPECT_FALSE(said.has_terms());
  EXPECT_EQ(said.slices_size(), 0);
  EXPECT_EQ(said.read_bytes_per_second(), 11U);
  EXPECT_GT(said.free_disk_bytes(), 0U);
}

TEST_F(EmptyNodeTest, IsNotServingWhereALenderIs) {
  HealthWatch whole(node_->address().ToString(), "");
  HealthWatch service(node_->address().ToString(), "shoal.v1.ExpertNode");
  EXPECT_EQ(whole.Next(), "\x08\x02");
  EXPECT_EQ(service.Next(), "\x08\x02");
  HealthWatch lender(lender_->address().ToString(), "shoal.v1.ExpertNode");
  EXPECT_EQ(lender.Next(), "\x08\x01");
}

TEST_F(EmptyNodeTest, ComputesAndCopiesNothing) {
  const auto refused = [] {
    return StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("alpha is empty"));
  };
  EXPECT_THAT(Execute(node_->address()), refused());
  EXPECT_THAT(FetchUnits(node_->address()), refused());
  NodeClient client(node_->address().ToString(), kMessageBytes, {});
  EXPECT_THAT(client.FetchModel(FileRequest(v1::MODEL_FILE_MANIFEST), kMessageBytes, {}).status(),
              refused());
}

TEST_F(EmptyNodeTest, IsFilledAndSaysSo) {
  NodeClient client(node_->address().ToString(), kMessageBytes, {});
  uint64_t done = 0;
  uint64_t total = 0;
  SHOAL_ASSERT_OK(client.Fill(Request(),
                              [&](const v1::FillProgress& progress) {
                                EXPECT_GE(progress.bytes_done(), done);
                                done = progress.bytes_done();
                                total = progress.bytes_total();
                              },
                              {}));
  EXPECT_EQ(done, total);
  EXPECT_GT(total, 0U);
  ASSERT_TRUE(WaitUntilFilled());
  EXPECT_THAT(VerifyPartition(dir_ / "alpha", nullptr).value(), IsEmpty());
  EXPECT_THAT(Fill(Request()), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("was filled")));
}

TEST_F(EmptyNodeTest, RefusesARequestBeforeItBegins) {
  v1::FillRequest request = Request();
  request.set_name("beta");
  EXPECT_THAT(Fill(request),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("\"beta\"")));
  request = Request();
  request.clear_terms();
  EXPECT_THAT(Fill(request), StatusIs(absl::StatusCode::kFailedPrecondition,
                                      HasSubstr("terms.protocol_version differs")));
  EXPECT_FALSE(fs::exists(dir_ / "alpha.partial"));
  SHOAL_EXPECT_OK(Fill(Request()));
}

TEST_F(EmptyNodeTest, ACallThatIsStoppedKeepsWhatIsFinished) {
  NodeClient client(node_->address().ToString(), kMessageBytes, {});
  std::stop_source stop;
  const absl::Status status = client.Fill(
      Request(), [&stop](const v1::FillProgress&) { stop.request_stop(); }, stop.get_token());
  // The last byte may have been faster than the stop.
  EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  if (!status.ok()) {
    // The node may still be at it, and says so.
    absl::Status again;
    do {
      again = Fill(Request());
    } while (absl::IsFailedPrecondition(again) &&
             absl::StrContains(again.message(), "another call"));
    EXPECT_TRUE(again.ok() || absl::IsUnavailable(again)) << again;
  }
  ASSERT_TRUE(WaitUntilFilled());
  EXPECT_THAT(VerifyPartition(dir_ / "alpha", nullptr).value(), IsEmpty());
}

TEST_F(EmptyNodeTest, ALentContainerSaysWhatItHoldsAndComputesNothing) {
  NodeClient client(lender_->address().ToString(), kMessageBytes, {});
  SHOAL_ASSERT_OK_AND_ASSIGN(const v1::DescribeReply said, client.Describe());
  SHOAL_EXPECT_OK(CheckTerms(MakeTerms(container_->manifest()), said.terms(), kSeenByCoordinator));
  ASSERT_EQ(said.slices_size(), 1);
  EXPECT_EQ(*FromMessage(said.slices(0), "slice"), kSmallWhole);
  EXPECT_EQ(said.name(), "coordinator");
  EXPECT_THAT(Execute(lender_->address()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("this is a coordinator")));
  SHOAL_EXPECT_OK(FetchUnits(lender_->address()));
}

TEST_F(EmptyNodeTest, ALentContainerSendsTheBytesOfItsSmallFiles) {
  NodeClient client(lender_->address().ToString(), kMessageBytes, {});
  const std::pair<v1::FetchModelRequest, std::string> files[] = {
      {FileRequest(v1::MODEL_FILE_MANIFEST), "manifest.json"},
      {FileRequest(v1::MODEL_FILE_CONFIG), "config.json"},
      {FileRequest(v1::MODEL_FILE_CODEBOOKS), "codebooks.bin"},
      {FileRequest(v1::MODEL_FILE_TREE, 2), "experts/layer-00002.tree"},
  };
  for (const auto& [request, name] : files) {
    const std::string expected = Content(container_->PathOf(name));
    ASSERT_FALSE(expected.empty());
    SHOAL_ASSERT_OK_AND_ASSIGN(const std::string sent,
                               client.FetchModel(request, expected.size(), {}));
    EXPECT_EQ(sent, expected) << name;
    EXPECT_THAT(client.FetchModel(request, expected.size() - 1, {}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it sent")))
        << name;
  }
}

TEST_F(EmptyNodeTest, ALentContainerRefusesWhatItDoesNotHave) {
  NodeClient client(lender_->address().ToString(), kMessageBytes, {});
  const auto refused = [&client](const v1::FetchModelRequest& request) {
    return client.FetchModel(request, kMessageBytes, {}).status();
  };
  using absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused(FileRequest(v1::MODEL_FILE_UNSPECIFIED)),
              StatusIs(kInvalidArgument, HasSubstr("file is 0")));
  EXPECT_THAT(refused(FileRequest(static_cast<v1::ModelFile>(77))),
              StatusIs(kInvalidArgument, HasSubstr("file is 77")));
  EXPECT_THAT(refused(FileRequest(v1::MODEL_FILE_TREE, 0)),
              StatusIs(kInvalidArgument, HasSubstr("layer is 0")));
  EXPECT_THAT(refused(FileRequest(v1::MODEL_FILE_CONFIG, 1)),
              StatusIs(kInvalidArgument, HasSubstr("layer is 1")));
  v1::FetchModelRequest foreign = FileRequest(v1::MODEL_FILE_CONFIG);
  foreign.mutable_terms()->mutable_container()->set_identity(std::string(64, '0'));
  EXPECT_THAT(refused(foreign), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         HasSubstr("container.identity differs")));
}

}  // namespace
}  // namespace shoal

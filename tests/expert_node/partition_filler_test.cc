// Filling an empty node from sources that hold parts, are busy, vanish or lie.
#include "expert_node/fill/partition_filler.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/partition_source.h"
#include "coordinator/pool/shard.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.grpc.pb.h"
#include "tests/coordinator/pool/small_pool.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

using ::shoal::testing::DifferentFiles;
using ::shoal::testing::kSmallWhole;
using ::shoal::testing::MakeSmallContainer;
using ::shoal::testing::ReadTree;
using ::shoal::testing::SmallPlan;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// An honest source of a container, unless a test gives it other ideas.
class FakeSource final : public v1::ExpertNode::Service {
 public:
  using UnitsWriter = grpc::ServerWriter<v1::FetchUnitsReply>;

  explicit FakeSource(const Container& container) : container_(container), files_(container) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeSource() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  std::vector<ExpertSlice> held = {kSmallWhole};
  // Called with each message before it is sent; ends the call where it is not OK.
  std::function<grpc::Status(v1::FetchUnitsReply& reply, UnitsWriter& writer)> on_units;
  std::function<void(v1::ModelFile file, std::string& content)> on_file;
  int64_t last_expert = 1000;  // what comes after it is left out, and the call ends with OK
  std::atomic<int> busy{0};    // so many calls to copy are refused first
  std::atomic<int> copies{0};  // FetchUnits calls

  grpc::Status Describe(grpc::ServerContext* /*context*/, const v1::DescribeRequest* /*request*/,
                        v1::DescribeReply* reply) override {
    reply->set_name("fake");
    *reply->mutable_terms() = MakeTerms(container_.manifest());
    for (const ExpertSlice& slice : held) {
      ToMessage(slice, reply->add_slices());
    }
    return grpc::Status::OK;
  }

  grpc::Status FetchModel(grpc::ServerContext* /*context*/, const v1::FetchModelRequest* request,
                          grpc::ServerWriter<v1::FetchModelReply>* writer) override {
    std::string content;
    switch (request->file()) {
      case v1::MODEL_FILE_MANIFEST:
        content = files_.ReadManifestText().value();
        break;
      case v1::MODEL_FILE_CONFIG:
        content = files_.config_json();
        break;
      case v1::MODEL_FILE_CODEBOOKS:
        content = files_.ReadCodebooks().value();
        break;
      default:
        content = LeavesOf(request->layer());
    }
    if (on_file) {
      on_file(request->file(), content);
    }
    // In two pieces, as long as there are two bytes.
    const size_t half = content.size() / 2;
    for (const std::string& piece : {content.substr(0, half), content.substr(half)}) {
      v1::FetchModelReply reply;
      reply.set_content(piece);
      writer->Write(reply);
    }
    return grpc::Status::OK;
  }

  grpc::Status FetchUnits(grpc::ServerContext* /*context*/, const v1::FetchUnitsRequest* request,
                          UnitsWriter* writer) override {
    ++copies;
    if (busy > 0) {
      --busy;
      return {grpc::StatusCode::RESOURCE_EXHAUSTED, "busy"};
    }
    const ExpertSlice slice = FromMessage(request->slice(), "slice").value();
    grpc::Status end;
    v1::FetchUnitsReply reply;
    ContainerSource files(container_);
    files
        .ReadUnits(request->layer(), slice, LeavesOf(request->layer()),
                   [&](ExpertKey key, int64_t unit, std::span<const std::byte> bytes) {
                     reply.set_expert(static_cast<uint32_t>(key.expert));
                     reply.mutable_units()->append(reinterpret_cast<const char*>(bytes.data()),
                                                   bytes.size());
                     if (unit + 1 == slice.units.end) {
                       end = on_units ? on_units(reply, *writer) : grpc::Status::OK;
                       if (!end.ok() || key.expert > last_expert) {
                         return absl::CancelledError("ended");
                       }
                       writer->Write(reply);
                       reply.Clear();
                     }
                     return absl::OkStatus();
                   })
        .IgnoreError();  // the end that the test wanted
    return end;
  }

 private:
  std::string LeavesOf(int64_t layer) {
    const auto& banks = container_.manifest().banks;
    for (const BankEntry& bank : banks) {
      if (bank.layer == layer) {
        return ContainerSource(container_).ReadLeaves(bank).value();
      }
    }
    return "";
  }

  const Container& container_;
  ContainerSource files_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class PartitionFillerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    made_ = std::make_unique<TempDir>();
    MakeSmallContainer(made_->path(), ExpertCodec::kRvq3);
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(*made_ / "model"));
    SHOAL_ASSERT_OK(Shard(*container, SmallPlan(container->manifest().identity), *made_ / "pool",
                          {}, nullptr, {}));
  }
  static void TearDownTestSuite() { made_.reset(); }

  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(container_, Container::Open(*made_ / "model"));
    options_.name = "alpha";
    options_.directory = Target();
    options_.on_note = [this](absl::string_view line) { notes_.emplace_back(line); };
    first_ = std::make_unique<FakeSource>(*container_);
    second_ = std::make_unique<FakeSource>(*container_);
    request_ = RequestFrom({first_.get()});
  }

  std::string Target() const { return dir_ / "alpha"; }
  // For alpha of SmallPlan, which Shard made.
  v1::FillRequest RequestFrom(const std::vector<FakeSource*>& sources) const {
    v1::FillRequest request;
    *request.mutable_terms() = MakeTerms(container_->manifest());
    request.set_name("alpha");
    for (const ExpertSlice& slice : SmallPlan(container_->manifest().identity).nodes[0].stored()) {
      ToMessage(slice, request.add_slices());
    }
    for (const FakeSource* source : sources) {
      request.add_sources(source->address());
    }
    request.set_manifest_sha256(container_->manifest_sha256());
    return request;
  }
  absl::Status Fill() { return FillPartition(request_, options_, nullptr, {}); }
  void ExpectAsSharded() {
    EXPECT_THAT(DifferentFiles(ReadTree(dir_.path()), ReadTree(Reference())), IsEmpty());
  }
  // The partition of alpha alone, in a directory of its own.
  std::string Reference() {
    const std::string path = reference_.path();
    if (!fs::exists(path + "/alpha")) {
      fs::copy(*made_ / "pool/alpha", path + "/alpha", fs::copy_options::recursive);
    }
    return path;
  }
  // The first source is given up for something with these words; alone with this code, and with the
  // second one beside it nothing is lost.
  template <typename Words>
  void ExpectSecondIsAskedAfter(Words words) {
    EXPECT_THAT(Fill(),
                StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(first_->address()), words)));
    EXPECT_FALSE(fs::exists(Target()));
    request_ = RequestFrom({first_.get(), second_.get()});
    notes_.clear();
    SHOAL_EXPECT_OK(Fill());
    EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr(first_->address()), words)));
    ExpectAsSharded();
  }

  static std::unique_ptr<TempDir> made_;
  TempDir dir_;
  TempDir reference_;
  std::unique_ptr<Container> container_;
  std::unique_ptr<FakeSource> first_;
  std::unique_ptr<FakeSource> second_;
  FillOptions options_;
  v1::FillRequest request_;
  std::vector<std::string> notes_;
};
std::unique_ptr<TempDir> PartitionFillerTest::made_;

TEST_F(PartitionFillerTest, MakesTheBytesThatShardMakes) {
  fs::create_directory(Target());  // an empty directory is as good as none
  uint64_t done = 0;
  uint64_t total = 0;
  SHOAL_ASSERT_OK(FillPartition(request_, options_,
                                [&](const PartitionProgress& progress) {
                                  done = progress.bytes_done;
                                  total = progress.bytes_total;
                                },
                                {}));
  ExpectAsSharded();
  uint64_t banks = 0;
  for (const auto& [name, content] : ReadTree(Target())) {
    banks += name.ends_with(".bank") ? content.size() : 0;
  }
  EXPECT_EQ(done, banks);
  EXPECT_EQ(total, banks);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(PartitionFillerTest, PutsARangeTogetherFromSourcesThatHoldParts) {
  first_->held = {{{0, 1}, {0, 14}}, {{2, 3}, {0, 5}}};
  second_->held = {{{1, 2}, {0, 14}}, {{2, 3}, {5, 14}}};
  request_ = RequestFrom({first_.get(), second_.get()});
  SHOAL_ASSERT_OK(Fill());
  EXPECT_GT(first_->copies, 0);
  EXPECT_GT(second_->copies, 0);
  ExpectAsSharded();
}

TEST_F(PartitionFillerTest, SaysWhatNoSourceHoldsBeforeAnythingIsWritten) {
  first_->held = {{{0, 3}, {0, 9}}};
  EXPECT_THAT(Fill(),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("units 0-2 of experts 9-13"),
                                                             HasSubstr(first_->address()))));
  EXPECT_THAT(ReadTree(dir_.path()), IsEmpty());
}

TEST_F(PartitionFillerTest, AsksABusySourceAgain) {
  first_->busy = 2;
  SHOAL_ASSERT_OK(Fill());
  ExpectAsSharded();
}

TEST_F(PartitionFillerTest, GoesOnWithAnotherSourceWhereOneVanishes) {
  std::atomic<int> experts{0};
  first_->on_units = [&](v1::FetchUnitsReply& /*reply*/, FakeSource::UnitsWriter& /*writer*/) {
    return ++experts < 12 ? grpc::Status::OK
                          : grpc::Status(grpc::StatusCode::UNAVAILABLE, "it is gone");
  };
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr(first_->address()), HasSubstr("it is gone"))));
  experts = 0;
  request_ = RequestFrom({first_.get(), second_.get()});
  SHOAL_ASSERT_OK(Fill());
  EXPECT_GT(second_->copies, 0);
  ExpectAsSharded();
}

TEST_F(PartitionFillerTest, ASourceWithADamagedRecordIsAskedAgainForTheNextLayer) {
  first_->on_units = [&](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    return first_->copies == 1 && reply.expert() == 3
               ? grpc::Status(grpc::StatusCode::DATA_LOSS, "layer 1 expert 3 unit 0: checksum")
               : grpc::Status::OK;
  };
  request_ = RequestFrom({first_.get(), second_.get()});
  SHOAL_ASSERT_OK(Fill());
  EXPECT_EQ(second_->copies, 1);
  EXPECT_GT(first_->copies, 2);
  ExpectAsSharded();
}

TEST_F(PartitionFillerTest, RefusesAUnitWithAnotherDigest) {
  first_->on_units = [](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    if (reply.expert() == 4) {
      (*reply.mutable_units())[reply.units().size() - 1] ^= 1;  // in the last of two units
    }
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(HasSubstr("layer 1 expert 4 unit 1"));
}

TEST_F(PartitionFillerTest, RefusesUnitsOfAnotherExpertWithGoodChecksums) {
  std::string other;
  first_->on_units = [&other](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    other.empty() ? void(other = reply.units()) : reply.set_units(other);
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(HasSubstr("layer 1 expert 1 unit 0"));
}

TEST_F(PartitionFillerTest, RefusesAnotherNumberOfBytes) {
  first_->on_units = [](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    reply.mutable_units()->append("x");
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("layer 1 expert 0"), HasSubstr("number of bytes")));
}

// gRPC refuses it before we see it, with the code that a busy source answers with.
TEST_F(PartitionFillerTest, RefusesAMessageThatIsTooLargeToBeTaken) {
  first_->on_units = [](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    reply.mutable_units()->append(size_t{5} << 20, 'x');
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(HasSubstr("larger than max"));
}

TEST_F(PartitionFillerTest, RefusesExpertsInAnotherOrder) {
  first_->on_units = [](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& /*writer*/) {
    reply.set_expert(reply.expert() ^ 1);
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("layer 1 expert 0"), HasSubstr("it sent expert 1")));
}

TEST_F(PartitionFillerTest, RefusesMoreExpertsThanItAskedFor) {
  first_->on_units = [](v1::FetchUnitsReply& reply, FakeSource::UnitsWriter& writer) {
    if (reply.expert() == 8) {  // the last of the first slice
      writer.Write(reply);
      reply.set_expert(9);
    }
    return grpc::Status::OK;
  };
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("one more"), HasSubstr("expert 9")));
}

TEST_F(PartitionFillerTest, RefusesFewerExpertsThanItAskedFor) {
  first_->last_expert = 5;
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("layer 1 expert 6"), HasSubstr("it sent nothing")));
}

TEST_F(PartitionFillerTest, RefusesSmallFilesThatAreNotTheManifests) {
  const std::pair<v1::ModelFile, const char*> files[] = {
      {v1::MODEL_FILE_MANIFEST, "manifest.json"},
      {v1::MODEL_FILE_CONFIG, "config.json"},
      {v1::MODEL_FILE_CODEBOOKS, "codebooks.bin"},
      {v1::MODEL_FILE_TREE, "layer-00001.tree"},
  };
  for (const auto& [changed, name] : files) {
    first_->on_file = [changed = changed](v1::ModelFile file, std::string& content) {
      if (file == changed) {
        content[content.size() / 3] ^= 4;
      }
    };
    request_ = RequestFrom({first_.get()});
    ExpectSecondIsAskedAfter(HasSubstr(name));
    fs::remove_all(Target());
  }
}

TEST_F(PartitionFillerTest, RefusesASmallFileThatIsTooLongOrTooShort) {
  first_->on_file = [](v1::ModelFile file, std::string& content) {
    content += file == v1::MODEL_FILE_TREE ? "x" : "";
  };
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("MODEL_FILE_TREE"), HasSubstr("bytes after")));
  fs::remove_all(Target());
  first_->on_file = [](v1::ModelFile file, std::string& content) {
    content.resize(content.size() - (file == v1::MODEL_FILE_TREE ? 32 : 0));
  };
  request_ = RequestFrom({first_.get()});
  ExpectSecondIsAskedAfter(AllOf(HasSubstr("layer-00001.tree"), HasSubstr("are called for")));
}

TEST_F(PartitionFillerTest, RefusesAContainerThatIsNotTheOneAskedFor) {
  request_.mutable_terms()->mutable_container()->set_identity(std::string(64, 'a'));
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kUnavailable,
                               AllOf(HasSubstr(first_->address()),
                                     HasSubstr("terms.container.identity differs"))));
  request_ = RequestFrom({first_.get()});
  request_.set_manifest_sha256(std::string(64, 'a'));
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest.json")));
  EXPECT_THAT(ReadTree(dir_.path()), IsEmpty());
}

TEST_F(PartitionFillerTest, GoesOnFromWhatAStoppedCallFinished) {
  std::stop_source stop;
  int reports = 0;
  EXPECT_THAT(FillPartition(
                  request_, options_,
                  [&](const PartitionProgress&) {
                    if (++reports == 25) {  // in the second layer
                      stop.request_stop();
                    }
                  },
                  stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, ::testing::_));
  EXPECT_FALSE(fs::exists(Target()));
  uint64_t finished = 0;
  for (const auto& [name, content] : ReadTree(dir_.path())) {
    finished += name.ends_with(".bank") ? content.size() : 0;
  }
  ASSERT_GT(finished, 0);
  uint64_t kept = 0;
  SHOAL_ASSERT_OK(FillPartition(
      request_, options_,
      [&kept](const PartitionProgress& progress) { kept = progress.bytes_kept; }, {}));
  EXPECT_EQ(kept, finished);
  ExpectAsSharded();
}

TEST_F(PartitionFillerTest, DoesNotGoOnWithAnotherPlansWork) {
  std::stop_source stop;
  FillPartition(
      request_, options_, [&](const PartitionProgress&) { stop.request_stop(); },
      stop.get_token())
      .IgnoreError();  // stopped at once
  request_.mutable_slices()->RemoveLast();
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("alpha.partial"), HasSubstr("other slices"))));
}

TEST_F(PartitionFillerTest, ComparesTheFreeSpaceBeforeAnythingIsWritten) {
  uint64_t free = 100'000;
  options_.free_disk_bytes = [&free](const std::string&) { return absl::StatusOr<uint64_t>(free); };
  const absl::Status refused = Fill();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("the partition needs another "),
                                      HasSubstr("has 100000 bytes"))));
  EXPECT_THAT(ReadTree(dir_.path()), IsEmpty());
  const std::string message(refused.message());
  ASSERT_EQ(std::sscanf(message.c_str(), "the partition needs another %lu bytes", &free), 1);
  SHOAL_EXPECT_OK(Fill());
}

TEST_F(PartitionFillerTest, NeverOverwritesSomethingElse) {
  fs::create_directories(Target() + "/photos");
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not empty")));
}

TEST_F(PartitionFillerTest, RefusesARequestThatBreaksARule) {
  const auto refused = [this](const std::function<void(v1::FillRequest&)>& change) {
    v1::FillRequest request = RequestFrom({first_.get()});
    change(request);
    return CheckFillRequest(request, options_).status();
  };
  using absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.set_name("beta"); }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("alpha"), HasSubstr("\"beta\""))));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.clear_name(); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("name differs")));
  using absl::StatusCode::kFailedPrecondition;
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.mutable_terms()->clear_container(); }),
              StatusIs(kFailedPrecondition, HasSubstr("terms.container.container_version")));
  EXPECT_THAT(
      refused([](v1::FillRequest& r) { r.mutable_terms()->mutable_container()->clear_identity(); }),
      StatusIs(kFailedPrecondition, HasSubstr("terms.container.identity is none")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.mutable_terms()->set_codec("tcq9"); }),
              StatusIs(kFailedPrecondition, HasSubstr("terms.codec: expert codec \"tcq9\"")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.mutable_terms()->set_kernel_revision(99); }),
              StatusIs(kFailedPrecondition, HasSubstr("kernel_revision differs")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.clear_manifest_sha256(); }),
              StatusIs(kInvalidArgument, HasSubstr("manifest_sha256")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.clear_slices(); }),
              StatusIs(kInvalidArgument, HasSubstr("slices has 0 elements; 1 to 256")));
  EXPECT_THAT(refused([](v1::FillRequest& r) {
                for (int i = 0; i < 256; ++i) {
                  *r.add_slices() = r.slices(0);
                }
              }),
              StatusIs(kInvalidArgument, HasSubstr("slices has 258 elements")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.mutable_slices(0)->clear_units(); }),
              StatusIs(kInvalidArgument, HasSubstr("slices.units is absent")));
  EXPECT_THAT(refused([](v1::FillRequest& r) { r.clear_sources(); }),
              StatusIs(kInvalidArgument, HasSubstr("sources has 0 elements; 1 to 64")));
  for (const char* source : {"attic:7071", "127.0.0.1:0", "127.0.0.1", "/etc/passwd", ""}) {
    EXPECT_THAT(refused([source](v1::FillRequest& r) { r.set_sources(0, source); }),
                StatusIs(kInvalidArgument, HasSubstr("is not a numeric host:port")))
        << source;
  }
  const auto far = [](v1::FillRequest& r) { r.set_sources(0, "192.0.2.1:7071"); };
  EXPECT_THAT(refused(far), StatusIs(kInvalidArgument, HasSubstr("--insecure")));
  options_.beyond_loopback = true;
  SHOAL_EXPECT_OK(refused(far));
}

TEST_F(PartitionFillerTest, RefusesSlicesOutsideTheModelOrOverlapping) {
  ToMessage({{2, 4}, {0, 9}}, request_.add_slices());
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("units [2, 4)")));
  request_.mutable_slices()->RemoveLast();
  *request_.add_slices() = request_.slices(0);
  EXPECT_THAT(Fill(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("slices")));
  EXPECT_THAT(ReadTree(dir_.path()), IsEmpty());
}

}  // namespace
}  // namespace shoal

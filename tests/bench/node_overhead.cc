// What the service ExpertNode adds to gRPC itself: the round trip of a layer over loopback, less the
// time that the node says it computed, against a bare bidi echo of the same bytes. Both have the
// same kind of client, one request in flight, and take turns: pairs of blocks of round trips.
//
//   node_overhead [PAIRS] [ROUND_TRIPS]
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "common/sync/mutex.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "shoal/v1/expert_node.grpc.pb.h"
#include "tests/bench/bench_support.h"

namespace shoal {
namespace {

using ::shoal::testing::Median;
using ::shoal::testing::OrDie;

using SteadyClock = std::chrono::steady_clock;

// A K3-shaped layer, one row.
constexpr int64_t kHiddenSize = 3584;
constexpr int64_t kPerToken = 16;
constexpr int64_t kNumExperts = 896;
constexpr int kReplyBytes = kHiddenSize * 8;
constexpr int kRequestBytes = kHiddenSize * 4;

// As little work as a backend can do.
class FillBackend final : public ExpertBackend {
 public:
  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> /*slices*/,
                       std::stop_token /*stop*/, std::span<int64_t> out) override {
    std::fill(out.begin(), out.end(), static_cast<int64_t>(batch.rows[0]));
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return stats_; }

 private:
  std::vector<ExpertLayerStats> stats_{60};
};

grpc::ByteBuffer Bytes(int size) {
  const grpc::Slice slice(std::string(static_cast<size_t>(size), 'x'));
  return {&slice, 1};
}

class EchoStream final : public grpc::ServerGenericBidiReactor {
 public:
  EchoStream() : reply_(Bytes(kReplyBytes)) { StartRead(&request_); }
  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    {
      MutexLock lock(&mutex_);
      ++owed_;
      WriteNext();
    }
    StartRead(&request_);
  }
  void OnWriteDone(bool /*ok*/) override {
    MutexLock lock(&mutex_);
    writing_ = false;
    WriteNext();
  }
  void OnDone() override {
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  // The client can have the reply, and ask again, before gRPC says that it was written.
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!writing_ && owed_ > 0) {
      --owed_;
      writing_ = true;
      StartWrite(&reply_);
    }
  }

  Mutex mutex_;
  int owed_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer request_;
  const grpc::ByteBuffer reply_;
};

class EchoService final : public grpc::CallbackGenericService {
 private:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* /*context*/) override {
    return new EchoStream();  // NOLINT(cppcoreguidelines-owning-memory)
  }
};

double Microseconds(SteadyClock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

class EchoClient {
 public:
  explicit EchoClient(const std::string& address)
      : channel_(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())),
        method_("/bare/Echo", grpc::internal::RpcMethod::BIDI_STREAMING, channel_),
        stream_(
            grpc::internal::ClientReaderWriterFactory<grpc::ByteBuffer, grpc::ByteBuffer>::Create(
                channel_.get(), method_, &context_)),
        request_(Bytes(kRequestBytes)) {}
  ~EchoClient() {
    stream_->WritesDone();
    stream_->Finish();
  }

  double RoundTrip() {
    const auto start = SteadyClock::now();
    grpc::ByteBuffer reply;
    if (!stream_->Write(request_) || !stream_->Read(&reply) || reply.Length() != kReplyBytes) {
      std::abort();
    }
    return Microseconds(SteadyClock::now() - start);
  }

 private:
  grpc::ClientContext context_;
  std::shared_ptr<grpc::Channel> channel_;
  const grpc::internal::RpcMethod method_;
  std::unique_ptr<grpc::ClientReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> stream_;
  grpc::ByteBuffer request_;
};

class NodeClient {
 public:
  NodeClient(const std::string& address, const v1::Terms& terms)
      : stub_(v1::ExpertNode::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Execute(&context_)) {
    v1::ExecuteRequest hello;
    *hello.mutable_hello()->mutable_terms() = terms;
    hello.mutable_hello()->set_epoch(1);
    if (!stream_->Write(hello) || !stream_->Read(&reply_) || !reply_.has_welcome()) {
      std::abort();
    }
    v1::LayerRequest& layer = *request_.mutable_layer();
    layer.set_epoch(1);
    layer.set_layer(1);
    layer.add_slices()->mutable_units()->set_end(1);
    layer.mutable_slices(0)->mutable_experts()->set_end(kNumExperts);
    layer.mutable_rows()->Resize(kHiddenSize, 1.5F);
    for (uint32_t i = 0; i < kPerToken; ++i) {
      layer.add_expert_ids(i * 7);
      layer.add_expert_weights(0.1F);
    }
  }
  ~NodeClient() {
    stream_->WritesDone();
    stream_->Finish();
  }

  // Less what the node computed.
  double RoundTrip() {
    request_.mutable_layer()->set_id(++id_);
    const auto start = SteadyClock::now();
    if (!stream_->Write(request_) || !stream_->Read(&reply_) ||
        reply_.layer().sums_size() != kHiddenSize || reply_.layer().sums(7) != 1) {
      std::abort();
    }
    queue_us_.push_back(static_cast<double>(reply_.layer().cost().queue_ns()) / 1000);
    return Microseconds(SteadyClock::now() - start) -
           static_cast<double>(reply_.layer().cost().execute_ns()) / 1000;
  }

  // Median time from a request's arrival to the start of its work.
  double QueueMicroseconds() const { return Median(queue_us_); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::ExpertNode::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ExecuteRequest, v1::ExecuteReply>> stream_;
  v1::ExecuteRequest request_;
  v1::ExecuteReply reply_;
  uint64_t id_ = 0;
  std::vector<double> queue_us_;
};

template <typename Client>
double MedianRoundTrip(Client& client, int round_trips) {
  std::vector<double> times(static_cast<size_t>(round_trips));
  for (double& time : times) {
    time = client.RoundTrip();
  }
  return Median(times);
}

void Compare(EchoClient& echo, NodeClient& node, int pairs, int round_trips) {
  MedianRoundTrip(echo, round_trips);
  MedianRoundTrip(node, round_trips);
  std::vector<double> ratios;
  std::printf("%6s %12s %12s %8s\n", "pair", "echo us", "node us", "ratio");
  for (int pair = 0; pair < pairs; ++pair) {
    const double bare = MedianRoundTrip(echo, round_trips);
    const double served = MedianRoundTrip(node, round_trips);
    ratios.push_back(served / bare);
    std::printf("%6d %12.1f %12.1f %8.3f\n", pair, bare, served, ratios.back());
  }
  std::printf("median ratio %.3f of %d pairs of %d round trips\n", Median(ratios), pairs,
              round_trips);
  std::printf("of it from arrival to the start of the work: %.1f us\n", node.QueueMicroseconds());
}

int Main(int pairs, int round_trips) {
  ExpertModel model;
  model.layout = OrDie(UnitLayout::Make(ExpertCodec::kF32, kHiddenSize, 8));
  model.num_experts = kNumExperts;
  model.num_experts_per_token = kPerToken;
  model.layers = {1};
  FillBackend backend;
  v1::Terms terms;
  terms.set_codec("f32");
  const auto units = OrDie(HeldUnits::Open(model.layout, {}));
  NodeService::Options options;
  options.name = "bench";
  const auto service =
      OrDie(NodeService::Create(backend, model, terms, *units, options, Clock::Real()));
  const auto server = OrDie(NodeServer::Start(*service, {"127.0.0.1", 0}));

  EchoService echo_service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&echo_service);
  const std::unique_ptr<grpc::Server> echo_server = builder.BuildAndStart();
  {
    EchoClient echo("127.0.0.1:" + std::to_string(port));
    NodeClient node(server->address().ToString(), terms);
    Compare(echo, node, pairs, round_trips);
  }
  echo_server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  const int pairs = argc > 1 ? std::atoi(argv[1]) : 9;
  const int round_trips = argc > 2 ? std::atoi(argv[2]) : 1000;
  return pairs < 1 || round_trips < 1 ? 2 : shoal::Main(pairs, round_trips);
}

// How long a token takes from its emission in the server to its arrival in a client: Generate of the
// service Inference, against a bare server stream of the same messages. Both have the same
// client, over loopback on the same clock; the bare one has as many messages, as far apart, and a thread
// that is busy between them as the model is. They take turns: pairs of answers.
//
//   token_delivery CONTAINER [PAIRS] [TOKENS]
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/sync/mutex.h"
#include "coordinator/model.h"
#include "coordinator/service/inference_service.h"
#include "expert_node/service/grpc_server.h"
#include "shoal/v1/inference.grpc.pb.h"
#include "tests/bench/bench_support.h"

namespace shoal {
namespace {

using ::shoal::testing::Median;
using ::shoal::testing::OrDie;

void Must(bool condition, const char* what) {
  if (!condition) {
    std::fprintf(stderr, "not as it should be: %s\n", what);
    std::abort();
  }
}

// The machine's clock, which keeps what it told each thread: the service asks once when it emits a token.
class StampClock final : public Clock {
 public:
  absl::Time Now() const override {
    const absl::Time now = Clock::Real().Now();
    MutexLock lock(&mutex_);
    stamps_[std::this_thread::get_id()].push_back(now);
    return now;
  }
  // What the thread that asked most often was told, since the last call.
  std::vector<absl::Time> Take() {
    MutexLock lock(&mutex_);
    std::vector<absl::Time> most;
    for (auto& [thread, stamps] : stamps_) {
      if (stamps.size() > most.size()) {
        most.swap(stamps);
      }
      stamps.clear();
    }
    return most;
  }

 private:
  mutable Mutex mutex_;
  mutable std::map<std::thread::id, std::vector<absl::Time>> stamps_ ABSL_GUARDED_BY(mutex_);
};

// Writes given messages at given distances, and keeps when it did.
class BareStream final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  BareStream(const std::vector<v1::GenerateEvent>& messages,
             const std::vector<absl::Duration>& distances, std::vector<absl::Time>& emitted)
      : messages_(messages), distances_(distances), emitted_(emitted) {
    producer_ = std::thread([this] { Produce(); });
  }
  void OnWriteDone(bool ok) override {
    Must(ok, "a bare message is sent");
    MutexLock lock(&mutex_);
    writing_ = false;
    WriteNext();
  }
  void OnDone() override {
    producer_.join();
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }

 private:
  void Produce() {
    for (const absl::Duration distance : distances_) {
      const absl::Time end = Clock::Real().Now() + distance;
      while (Clock::Real().Now() < end) {
      }
      emitted_.push_back(Clock::Real().Now());
      MutexLock lock(&mutex_);
      ++owed_;
      WriteNext();
    }
  }
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!writing_ && owed_ > 0) {
      --owed_;
      writing_ = true;
      StartWrite(&messages_[sent_++]);
    } else if (!writing_ && sent_ == messages_.size()) {
      Finish(grpc::Status::OK);
    }
  }

  const std::vector<v1::GenerateEvent>& messages_;
  const std::vector<absl::Duration>& distances_;
  std::vector<absl::Time>& emitted_;
  std::thread producer_;
  Mutex mutex_;
  size_t owed_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
};

class BareService final : public v1::Inference::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* /*request*/) override {
    emitted.clear();
    return new BareStream(messages, distances, emitted);  // NOLINT(cppcoreguidelines-owning-memory)
  }

  // One call at a time: what it is to send, and when it did.
  std::vector<v1::GenerateEvent> messages;
  std::vector<absl::Duration> distances;
  std::vector<absl::Time> emitted;
};

// A call, to its end: the tokens, and when each arrived.
struct Received {
  std::vector<v1::GenerateEvent> messages;
  std::vector<absl::Time> arrived;
};

Received Call(v1::Inference::Stub& stub, uint32_t tokens) {
  v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.mutable_options()->set_max_tokens(tokens);
  request.mutable_options()->set_ignore_end_of_text(true);
  grpc::ClientContext context;
  const auto reader = stub.Generate(&context, request);
  Received received;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    if (event.has_token()) {
      received.arrived.push_back(Clock::Real().Now());
      received.messages.push_back(event);
    }
  }
  Must(reader->Finish().ok() && received.arrived.size() == tokens, "a call has all its tokens");
  return received;
}

void WaitUntilIdle(v1::Inference::Stub& stub) {
  v1::GetModelReply reply;
  do {
    grpc::ClientContext context;
    Must(stub.GetModel(&context, {}, &reply).ok(), "GetModel is answered");
  } while (reply.load().running() > 0);
}

std::vector<double> Microseconds(const std::vector<absl::Time>& from,
                                 const std::vector<absl::Time>& to) {
  Must(from.size() == to.size(), "as many emissions as arrivals");
  std::vector<double> times;
  times.reserve(from.size());
  for (size_t i = 0; i < from.size(); ++i) {
    Must(from[i] < to[i], "a token arrives after its emission");
    times.push_back(absl::ToDoubleMicroseconds(to[i] - from[i]));
  }
  return times;
}

// When the service emitted the tokens, of what the thread of the session was told: after them it asks
// when the call ended, and when the session is free.
std::vector<absl::Time> Emissions(const std::vector<absl::Time>& stamps, size_t tokens) {
  constexpr size_t kAfter = 2;
  constexpr size_t kBefore = 1;  // when the session began
  Must(stamps.size() >= kBefore + tokens + kAfter, "the clock is asked at each token");
  const auto end = stamps.end() - kAfter;
  return {end - static_cast<std::ptrdiff_t>(tokens), end};
}

int Main(const std::string& container, int pairs, uint32_t tokens) {
  StampClock clock;
  const auto model = OrDie(Model::Open(container, {.context_tokens = 4096, .num_threads = 1}));
  InferenceService::Options options;
  options.model_name = "bench";
  const auto service = OrDie(InferenceService::Create(*model, options, clock));
  GrpcServer::Options listening;
  listening.address = {"127.0.0.1", 0};
  listening.max_request_bytes = service->MaxRequestBytes();
  listening.watched_by_service = {
      {CallKind::kAnswer, [&service](ServerGuard& guard) { service->SetGuard(guard); }}};
  const auto server = OrDie(GrpcServer::Start({&service->grpc_service()}, listening));
  const auto stub = v1::Inference::NewStub(
      grpc::CreateChannel(server->address().ToString(), grpc::InsecureChannelCredentials()));

  BareService bare;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&bare);
  const std::unique_ptr<grpc::Server> bare_server = builder.BuildAndStart();
  const auto bare_stub = v1::Inference::NewStub(
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials()));

  std::vector<double> ratios;
  std::vector<double> all_bare;
  std::vector<double> all_served;
  std::printf("%6s %12s %12s %8s %16s\n", "pair", "bare us", "served us", "ratio",
              "between tokens");
  for (int pair = -1; pair < pairs; ++pair) {
    WaitUntilIdle(*stub);
    clock.Take();
    const Received served = Call(*stub, tokens);
    WaitUntilIdle(*stub);
    const std::vector<absl::Time> emitted = Emissions(clock.Take(), tokens);
    bare.messages = served.messages;
    bare.distances.assign(1, absl::ZeroDuration());
    for (size_t i = 1; i < emitted.size(); ++i) {
      bare.distances.push_back(emitted[i] - emitted[i - 1]);
    }
    const Received direct = Call(*bare_stub, tokens);
    if (pair < 0) {
      continue;  // the first of each makes connections
    }
    const std::vector<double> bare_us = Microseconds(bare.emitted, direct.arrived);
    const std::vector<double> served_us = Microseconds(emitted, served.arrived);
    all_bare.insert(all_bare.end(), bare_us.begin(), bare_us.end());
    all_served.insert(all_served.end(), served_us.begin(), served_us.end());
    ratios.push_back(Median(served_us) / Median(bare_us));
    std::printf("%6d %12.1f %12.1f %8.3f %13.2f ms\n", pair, Median(bare_us), Median(served_us),
                ratios.back(),
                absl::ToDoubleMilliseconds(emitted.back() - emitted.front()) / (tokens - 1));
  }
  std::printf("median ratio %.3f of %d pairs of %u tokens\n", Median(ratios), pairs, tokens);
  std::printf("all tokens: p50 %.1f us bare, %.1f us served, ratio %.3f\n", Median(all_bare),
              Median(all_served), Median(all_served) / Median(all_bare));
  server->Shutdown();
  bare_server->Shutdown();
  return 0;
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: token_delivery CONTAINER [PAIRS] [TOKENS]\n");
    return 2;
  }
  const int pairs = argc > 2 ? std::atoi(argv[2]) : 9;
  const int tokens = argc > 3 ? std::atoi(argv[3]) : 300;
  if (pairs < 1 || tokens < 2) {
    std::fprintf(stderr, "PAIRS is 1 or more, TOKENS 2 or more\n");
    return 2;
  }
  return shoal::Main(argv[1], pairs, static_cast<uint32_t>(tokens));
}

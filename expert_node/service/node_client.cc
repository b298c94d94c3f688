#include "expert_node/service/node_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "expert_node/service/channel.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/drill.grpc.pb.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kDescribeWithin(5);
constexpr std::chrono::seconds kDrillWithin(5);
constexpr std::chrono::seconds kAnswerWithin(30);
constexpr uint64_t kSlowestBytesPerSecond = 1'000'000;
// A node that vanished without a word is noticed after their sum.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kReconnectMs = 200;
constexpr int kReconnectMaxMs = 2000;
constexpr int kConnectWithinMs = 3000;

// gRPC ends a call whose message it does not take with the code that a busy node answers with. Only
// its words tell them apart.
bool IsTooLarge(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         absl::StrContains(status.error_message(), "message larger than max");
}

// The context of one call, which a stop cancels.
class Call {
 public:
  explicit Call(std::stop_token stop) : stop_(std::move(stop)), cancel_(stop_, Cancel{&context_}) {}

  grpc::ClientContext& context() { return context_; }
  void SetDeadline(std::chrono::seconds within) {
    within_ = within;
    context_.set_deadline(std::chrono::system_clock::now() + within);
  }
  // What the call's end means to the caller.
  absl::Status StatusOf(const grpc::Status& status) const {
    if (stop_.stop_requested() && !status.ok()) {
      return absl::CancelledError("stopped");
    }
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::UnavailableError(absl::StrCat("no answer within ", within_.count(), " seconds"));
    }
    return IsTooLarge(status) ? absl::InvalidArgumentError(status.error_message())
                              : FromGrpcStatus(status);
  }

 private:
  struct Cancel {
    grpc::ClientContext* context;
    void operator()() const { context->TryCancel(); }
  };

  grpc::ClientContext context_;
  std::chrono::seconds within_{0};
  const std::stop_token stop_;
  const std::stop_callback<Cancel> cancel_;
};

std::chrono::seconds TimeFor(uint64_t bytes) {
  constexpr uint64_t kMostSeconds = 24 * 3600;
  return kAnswerWithin + std::chrono::seconds(static_cast<int64_t>(
                             std::min(bytes / kSlowestBytesPerSecond, kMostSeconds)));
}

// Hands every message to `take` until one is refused, and ends the call: the error of `take`, or
// how the call ended.
template <typename Message, typename Take>
absl::Status ReadAll(Call& call, grpc::ClientReader<Message>& reader, Take take) {
  Message message;
  absl::Status refused;
  while (refused.ok() && reader.Read(&message)) {
    refused = take(message);
  }
  if (!refused.ok()) {
    call.context().TryCancel();
    while (reader.Read(&message)) {
    }
  }
  const grpc::Status end = reader.Finish();
  return refused.ok() ? call.StatusOf(end) : refused;
}

}  // namespace

struct NodeClient::Impl {
  std::unique_ptr<v1::ExpertNode::Stub> stub;
  std::unique_ptr<v1::Drill::Stub> drill_stub;
};

NodeClient::NodeClient(const std::string& address, uint64_t max_message_bytes,
                       const ChannelSecurity& security)
    : impl_(std::make_unique<Impl>()) {
  constexpr uint64_t kMost = std::numeric_limits<int>::max();
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(std::min(max_message_bytes, kMost)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A node that was just filled is gone for a moment.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  // In spite of its name it is also how long one attempt may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectWithinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // A connection of its own: one to the same address that another part of the program has may be
  // waiting to try again.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const std::shared_ptr<grpc::Channel> channel =
      MakeChannel(address, MakeChannelCredentials(security), arguments);
  impl_->stub = v1::ExpertNode::NewStub(channel);
  impl_->drill_stub = v1::Drill::NewStub(channel);
}

NodeClient::~NodeClient() = default;

absl::StatusOr<v1::DescribeReply> NodeClient::Describe(std::stop_token stop) {
  Call call(std::move(stop));
  call.SetDeadline(kDescribeWithin);
  v1::DescribeReply reply;
  SHOAL_RETURN_IF_ERROR(
      call.StatusOf(impl_->stub->Describe(&call.context(), v1::DescribeRequest(), &reply)));
  return reply;
}

absl::StatusOr<std::string> NodeClient::FetchModel(const v1::FetchModelRequest& request,
                                                   uint64_t max_bytes, std::stop_token stop) {
  Call call(std::move(stop));
  call.SetDeadline(TimeFor(max_bytes));
  std::string file;
  const auto reader = impl_->stub->FetchModel(&call.context(), request);
  SHOAL_RETURN_IF_ERROR(ReadAll(call, *reader, [&](const v1::FetchModelReply& reply) {
    if (reply.content().empty() || reply.content().size() > max_bytes - file.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(v1::ModelFile_Name(request.file()), ": it sent ", reply.content().size(),
                       " bytes after ", file.size(), "; 1 to ", max_bytes, " in all are accepted"));
    }
    file += reply.content();
    return absl::OkStatus();
  }));
  return file;
}

absl::Status NodeClient::FetchUnits(const v1::FetchUnitsRequest& request, uint64_t expert_bytes,
                                    OnUnits on_units, std::stop_token stop) {
  const int64_t end = request.slice().experts().end();
  int64_t next = request.slice().experts().begin();
  Call call(std::move(stop));
  call.SetDeadline(TimeFor(expert_bytes * static_cast<uint64_t>(end - next)));
  const auto wrong = [&](absl::string_view what, uint64_t seen) {
    return absl::InvalidArgumentError(
        absl::StrCat("layer ", request.layer(), " expert ", next, ": it sent ", what, " ", seen));
  };
  const auto reader = impl_->stub->FetchUnits(&call.context(), request);
  SHOAL_RETURN_IF_ERROR(ReadAll(call, *reader, [&](const v1::FetchUnitsReply& reply) {
    if (next == end || reply.expert() != static_cast<uint64_t>(next)) {
      return wrong(next == end ? "one more, that of expert" : "expert", reply.expert());
    }
    if (reply.units().size() != expert_bytes) {
      return wrong(absl::StrCat("another number of bytes than ", expert_bytes, ":"),
                   reply.units().size());
    }
    absl::Status taken = on_units(next, reply.units());
    ++next;
    return taken;
  }));
  return next == end ? absl::OkStatus()
                     : wrong("nothing, after so many experts:",
                             static_cast<uint64_t>(next) - request.slice().experts().begin());
}

absl::Status NodeClient::Fill(const v1::FillRequest& request,
                              absl::FunctionRef<void(const v1::FillProgress&)> on_progress,
                              std::stop_token stop) {
  Call call(std::move(stop));
  const auto reader = impl_->stub->Fill(&call.context(), request);
  return ReadAll(call, *reader, [&](const v1::FillProgress& progress) {
    on_progress(progress);
    return absl::OkStatus();
  });
}

absl::Status NodeClient::Drill(const v1::DrillRequest& request) {
  Call call({});
  call.SetDeadline(kDrillWithin);
  v1::DrillReply reply;
  return call.StatusOf(impl_->drill_stub->Start(&call.context(), request, &reply));
}

}  // namespace shoal

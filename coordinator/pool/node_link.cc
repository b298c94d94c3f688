#include "coordinator/pool/node_link.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "expert_node/service/channel.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {
namespace {

// gRPC tries to connect again after these; a pool is a few machines in one room.
constexpr int kReconnectMs = 200;
constexpr int kReconnectMaxMs = 2000;
constexpr int kConnectWithinMs = 3000;

std::shared_ptr<grpc::Channel> ChannelOf(const NodeLink::Options& options) {
  grpc::ChannelArguments arguments;
  const auto limit = static_cast<int>(options.max_message_bytes);
  arguments.SetMaxReceiveMessageSize(limit);
  arguments.SetMaxSendMessageSize(limit);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMs);
  // In spite of its name it is also how long one attempt may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectWithinMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMaxMs);
  // Every node is a connection of its own, also two at one address after a restart.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return MakeChannel(options.address, MakeChannelCredentials(options.security), arguments);
}

// Rows and sums of a request, which are nearly all of its bytes and its reply's.
uint64_t TransferBytes(const v1::LayerRequest& request) {
  return static_cast<uint64_t>(request.rows_size()) * (sizeof(float) + sizeof(int64_t));
}

// A request on its way. Nobody waits for the reply where `on_reply` is empty.
struct Pending {
  NodeLink::OnReply on_reply;
  uint64_t bytes = 0;
};

}  // namespace

struct NodeLink::Connection {
  explicit Connection(const Options& options) : stub(v1::ExpertNode::NewStub(ChannelOf(options))) {}
  const std::unique_ptr<v1::ExpertNode::Stub> stub;
};

// What the link and its stream share.
struct NodeLink::Core {
  Core(std::string the_address, const v1::Hello& hello, std::function<void()> change,
       const Clock& the_clock)
      : address(std::move(the_address)), on_change(std::move(change)), clock(the_clock) {
    *greeting.mutable_hello() = hello;
  }

  const std::string address;
  const std::function<void()> on_change;
  const Clock& clock;
  v1::ExecuteRequest greeting;

  mutable Mutex mutex;
  CondVar ended;
  // Null between streams, and once the stream has stopped to read: nothing is written then.
  Stream* stream ABSL_GUARDED_BY(mutex) = nullptr;
  bool stream_exists ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool silent ABSL_GUARDED_BY(mutex) = false;  // the last stream was broken because of that
  View view ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<uint64_t, Pending> pending ABSL_GUARDED_BY(mutex);
};

// Deletes itself when gRPC has ended it.
class NodeLink::Stream final
    : public grpc::ClientBidiReactor<v1::ExecuteRequest, v1::ExecuteReply> {
 public:
  explicit Stream(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  // Begin and Write are called with the core's mutex held; the analysis cannot see that the caller's
  // core is this one.
  void Begin(v1::ExpertNode::Stub& stub) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    stub.async()->Execute(&context_, this);
    // Writes come from outside of the reactions: held until reading has ended.
    AddHold();
    StartRead(&reply_);
    Write(std::shared_ptr<const v1::ExecuteRequest>(core_, &core_->greeting));
    StartCall();
  }

  void Write(std::shared_ptr<const v1::ExecuteRequest> request) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    outbox_.push_back(std::move(request));
    if (outbox_.size() == 1) {
      StartWrite(outbox_.front().get());
    }
  }

  void Cancel() { context_.TryCancel(); }

  // The certificate of the other end; the stream was welcomed.
  std::string PeerCertificate() const { return shoal::PeerCertificate(*context_.auth_context()); }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&core_->mutex);
    if (!ok || core_->stream != this) {
      return;
    }
    outbox_.pop_front();
    if (!outbox_.empty()) {
      StartWrite(outbox_.front().get());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      {
        MutexLock lock(&core_->mutex);
        core_->stream = nullptr;
        core_->view.open = false;
      }
      RemoveHold();
      return;
    }
    Handle();
    StartRead(&reply_);
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Core> core = core_;
    const absl::Status error =
        status.ok()
            ? absl::UnavailableError(absl::StrCat(core->address, ": the node ended the stream"))
            : Annotate(FromGrpcStatus(status), core->address);
    absl::flat_hash_map<uint64_t, Pending> pending;
    {
      MutexLock lock(&core->mutex);
      core->view.open = false;
      core->view.last_error = error;
      core->view.bytes_in_flight = 0;
      pending.swap(core->pending);
    }
    for (auto& [id, request] : pending) {
      if (request.on_reply) {
        // A node ends a stream with INVALID_ARGUMENT when it cannot read a message: no use to
        // repeat it.
        request.on_reply(absl::IsInvalidArgument(error) ? error
                                                        : absl::UnavailableError(error.message()));
      }
    }
    core->on_change();
    delete this;
    // Last: from here on the link may be gone, and another stream may begin.
    MutexLock lock(&core->mutex);
    core->view.under_way = false;
    core->stream_exists = false;
    core->ended.NotifyAll();
  }

 private:
  void Handle() {
    OnReply on_reply;
    bool welcomed = false;
    {
      MutexLock lock(&core_->mutex);
      core_->view.last_heard = core_->clock.Now();
      if (reply_.has_welcome()) {
        core_->view.node =
            std::shared_ptr<const v1::DescribeReply>(reply_.mutable_welcome()->release_node());
        welcomed = core_->view.node != nullptr;
        core_->view.open = welcomed;
      } else if (reply_.has_layer()) {
        const auto it = core_->pending.find(reply_.layer().id());
        if (it != core_->pending.end()) {
          on_reply = std::move(it->second.on_reply);
          core_->view.bytes_in_flight -= it->second.bytes;
          core_->pending.erase(it);
        }
      }
    }
    if (welcomed) {
      core_->on_change();
    }
    if (on_reply) {
      on_reply(std::unique_ptr<v1::LayerReply>(reply_.release_layer()));
    }
  }

  const std::shared_ptr<Core> core_;
  grpc::ClientContext context_;
  v1::ExecuteReply reply_;
  std::deque<std::shared_ptr<const v1::ExecuteRequest>> outbox_ ABSL_GUARDED_BY(core_->mutex);
};

NodeLink::NodeLink(Options options, const v1::Hello& hello, std::function<void()> on_change,
                   const Clock& clock)
    : options_(std::move(options)),
      connection_(std::make_unique<Connection>(options_)),
      core_(std::make_shared<Core>(options_.address, hello, std::move(on_change), clock)) {}

NodeLink::~NodeLink() {
  MutexLock lock(&core_->mutex);
  core_->closing = true;
  if (core_->stream != nullptr) {
    core_->stream->Cancel();
  }
  while (core_->stream_exists) {
    core_->ended.Wait(&core_->mutex);
  }
}

void NodeLink::Open() {
  std::unique_ptr<Connection> last;  // closed without the lock
  MutexLock lock(&core_->mutex);
  if (core_->stream_exists || core_->closing) {
    return;
  }
  if (std::exchange(core_->silent, false)) {
    last = std::exchange(connection_, std::make_unique<Connection>(options_));
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  core_->stream = new Stream(core_);
  core_->stream_exists = true;
  core_->view.under_way = true;
  core_->view.last_heard = core_->clock.Now();
  core_->stream->Begin(*connection_->stub);
}

void NodeLink::Break() {
  MutexLock lock(&core_->mutex);
  if (core_->stream != nullptr) {
    core_->silent = true;
    core_->stream->Cancel();
  }
}

NodeLink::View NodeLink::view() const {
  MutexLock lock(&core_->mutex);
  return core_->view;
}

bool NodeLink::Send(std::shared_ptr<const v1::ExecuteRequest> request, OnReply on_reply) {
  MutexLock lock(&core_->mutex);
  if (core_->stream == nullptr || !core_->view.open) {
    return false;
  }
  const uint64_t bytes = TransferBytes(request->layer());
  core_->pending.emplace(request->layer().id(), Pending{std::move(on_reply), bytes});
  core_->view.bytes_in_flight += bytes;
  core_->stream->Write(std::move(request));
  return true;
}

void NodeLink::Forget(uint64_t id) {
  MutexLock lock(&core_->mutex);
  if (const auto it = core_->pending.find(id); it != core_->pending.end()) {
    it->second.on_reply = nullptr;
  }
}

absl::Status NodeLink::CheckPeer() const {
  if (options_.security.own == nullptr) {
    return absl::OkStatus();
  }
  std::string pem;
  {
    MutexLock lock(&core_->mutex);
    if (core_->stream == nullptr || !core_->view.open) {
      return absl::OkStatus();
    }
    pem = core_->stream->PeerCertificate();
  }
  return options_.security.own->Verify(pem, TlsSide::kServer).status();
}

void NodeLink::Ping() {
  auto request = std::make_shared<v1::ExecuteRequest>();
  request->mutable_ping()->set_id(1);
  MutexLock lock(&core_->mutex);
  if (core_->stream != nullptr && core_->view.open) {
    core_->stream->Write(std::move(request));
  }
}

}  // namespace shoal

#include "expert_node/service/empty_node_server.h"

#include <grpcpp/support/server_callback.h>

#include <filesystem>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/container/staging_directory.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "expert_node/io_threads.h"
#include "expert_node/service/fill_stream.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/refusal.h"
#include "expert_node/service/units_server.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {

class EmptyNodeServer::Service final : public v1::ExpertNode::CallbackService {
 public:
  using ExecuteReactor = grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteReply>;
  using UnitsReactor = grpc::ServerWriteReactor<v1::FetchUnitsReply>;
  using ModelReactor = grpc::ServerWriteReactor<v1::FetchModelReply>;
  using FillReactor = grpc::ServerWriteReactor<v1::FillProgress>;

  explicit Service(Options options) : options_(std::move(options)), worker_(1) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* /*request*/,
                                     v1::DescribeReply* reply) override {
    reply->set_name(options_.fill.name);
    reply->set_read_bytes_per_second(options_.read_bytes_per_second);
    // The directory itself may not be there yet.
    const std::string parent =
        std::filesystem::path(WithoutTrailingSlashes(options_.fill.directory)).parent_path();
    reply->set_free_disk_bytes(
        options_.fill.free_disk_bytes(parent.empty() ? "." : parent).value_or(0));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  ExecuteReactor* Execute(grpc::CallbackServerContext* /*context*/) override {
    return Refuse<ExecuteReactor>(IsEmpty());
  }
  UnitsReactor* FetchUnits(grpc::CallbackServerContext* /*context*/,
                           const v1::FetchUnitsRequest* /*request*/) override {
    return Refuse<UnitsReactor>(IsEmpty());
  }
  ModelReactor* FetchModel(grpc::CallbackServerContext* /*context*/,
                           const v1::FetchModelRequest* /*request*/) override {
    return Refuse<ModelReactor>(IsEmpty());
  }
  FillReactor* Fill(grpc::CallbackServerContext* context, const v1::FillRequest* request) override;

  // Takes no Fill any more, and stops the one that is under way.
  void Drain() {
    MutexLock lock(&mutex_);
    draining_ = true;
    if (filling_ != nullptr) {
      filling_->Drain();
    }
  }

 private:
  absl::Status IsEmpty() const {
    return absl::FailedPreconditionError(absl::StrCat(
        "the node ", options_.fill.name, " is empty: it has to be filled first (`shoal fill`)"));
  }
  void OnFillDone(const absl::Status& status) {
    {
      MutexLock lock(&mutex_);
      filling_ = nullptr;
      filled_ = status.ok();
    }
    if (status.ok()) {
      options_.on_filled();
    } else {
      options_.fill.on_note(absl::StrCat("it was not filled: ", std::string(status.message())));
    }
  }

  const Options options_;
  Mutex mutex_;
  FillStream* filling_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool filled_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  IoThreads worker_;  // last: its job uses what is above
};

EmptyNodeServer::Service::FillReactor* EmptyNodeServer::Service::Fill(
    grpc::CallbackServerContext* /*context*/, const v1::FillRequest* request) {
  if (const auto order = CheckFillRequest(*request, options_.fill); !order.ok()) {
    return Refuse<FillReactor>(order.status());
  }
  MutexLock lock(&mutex_);
  if (draining_ || filled_) {
    return Refuse<FillReactor>(absl::UnavailableError(
        filled_ ? "the node was filled and is about to serve" : "the node ends"));
  }
  if (filling_ != nullptr) {
    return Refuse<FillReactor>(absl::FailedPreconditionError(
        "the node is being filled by another call; wait for it, or end it"));
  }
  // The request goes when the handler returns.
  auto work = [this, order = *request](const OnPartitionProgress& on_progress,
                                       std::stop_token stop) {
    return FillPartition(order, options_.fill, on_progress, std::move(stop));
  };
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): deletes itself in OnDone
  filling_ = new FillStream(std::move(work), worker_,
                            [this](const absl::Status& status) { OnFillDone(status); });
  return filling_;
}

struct EmptyNodeServer::Impl {
  std::unique_ptr<Service> service;
  std::unique_ptr<GrpcServer> server;  // goes first
};

absl::StatusOr<std::unique_ptr<EmptyNodeServer>> EmptyNodeServer::Start(Options options) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(options.fill.name, "name"));
  const NetAddress address = options.address;
  const ServerSecurity security = options.security;
  auto impl = std::make_unique<Impl>();
  impl->service = std::make_unique<Service>(std::move(options));
  SHOAL_ASSIGN_OR_RETURN(impl->server, GrpcServer::Start({impl->service.get()},
                                                         {.address = address,
                                                          .max_request_bytes = kMaxCopyRequestBytes,
                                                          .serving = false,
                                                          .security = security}));
  return std::unique_ptr<EmptyNodeServer>(new EmptyNodeServer(std::move(impl)));
}

EmptyNodeServer::EmptyNodeServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EmptyNodeServer::~EmptyNodeServer() {
  impl_->service->Drain();
  impl_->server->Shutdown();
}

const NetAddress& EmptyNodeServer::address() const { return impl_->server->address(); }

}  // namespace shoal

#include "expert_node/service/units_server.h"

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <utility>

#include "common/container/slice_json.h"
#include "common/status/status_macros.h"
#include "expert_node/expert_model.h"
#include "expert_node/service/copy_service.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/held_units.h"
#include "expert_node/service/refusal.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "expert_node/slice_source.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {
namespace {

absl::Status Refused() {
  return absl::FailedPreconditionError(
      "this is a coordinator: it computes for nobody and is not filled; it lends units");
}

}  // namespace

class UnitsService::Impl final : public v1::ExpertNode::CallbackService {
 public:
  using ExecuteReactor = grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteReply>;
  using FillReactor = grpc::ServerWriteReactor<v1::FillProgress>;

  Impl(const Container& container, std::unique_ptr<HeldUnits> units, Options options)
      : sizes_(ExpertSizes::FromManifest(container.manifest())),
        terms_(MakeTerms(container.manifest())),
        units_(std::move(units)),
        options_(std::move(options)),
        copies_(sizes_, terms_, *units_,
                {container.directory(), options_.max_copies, options_.own}) {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* /*request*/,
                                     v1::DescribeReply* reply) override {
    reply->set_name(options_.name);
    *reply->mutable_terms() = terms_;
    for (const ExpertSlice& slice : units_->slices()) {
      ToMessage(slice, reply->add_slices());
    }
    reply->set_num_layers(static_cast<uint32_t>(sizes_.layers.size()));
    reply->set_draining(draining_);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  CopyService::UnitsReactor* FetchUnits(grpc::CallbackServerContext* context,
                                        const v1::FetchUnitsRequest* request) override {
    return copies_.FetchUnits(*context, *request);
  }
  CopyService::ModelReactor* FetchModel(grpc::CallbackServerContext* /*context*/,
                                        const v1::FetchModelRequest* request) override {
    return copies_.FetchModel(*request);
  }
  ExecuteReactor* Execute(grpc::CallbackServerContext* /*context*/) override {
    return Refuse<ExecuteReactor>(Refused());
  }
  FillReactor* Fill(grpc::CallbackServerContext* /*context*/,
                    const v1::FillRequest* /*request*/) override {
    return Refuse<FillReactor>(Refused());
  }

  uint64_t MessageBytes() const {
    // As a message, and as it leaves.
    return 2 * static_cast<uint64_t>(options_.max_copies) * sizes_.layout.record_bytes;
  }
  void Drain() {
    draining_ = true;
    copies_.Drain();
  }

 private:
  const ExpertSizes sizes_;
  const v1::Terms terms_;
  const std::unique_ptr<HeldUnits> units_;
  const Options options_;
  CopyService copies_;
  std::atomic<bool> draining_{false};
};

absl::StatusOr<std::unique_ptr<UnitsService>> UnitsService::Create(const Container& container,
                                                                   const Options& options) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(options.name, "name"));
  const Manifest& manifest = container.manifest();
  if (manifest.whole_experts().empty()) {
    return absl::FailedPreconditionError("the model has no MoE layer, so there are no experts");
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<HeldUnits> units,
                         HeldUnits::Open(manifest.unit_layout,
                                         {SliceOfContainer(container, manifest.whole_experts())}));
  return std::unique_ptr<UnitsService>(
      new UnitsService(std::make_unique<Impl>(container, std::move(units), options)));
}

UnitsService::UnitsService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UnitsService::~UnitsService() = default;

grpc::Service& UnitsService::grpc_service() { return *impl_; }
uint64_t UnitsService::MessageBytes() const { return impl_->MessageBytes(); }
void UnitsService::Drain() { impl_->Drain(); }

struct UnitsServer::Impl {
  std::unique_ptr<UnitsService> service;
  std::unique_ptr<GrpcServer> server;  // goes first
};

absl::StatusOr<std::unique_ptr<UnitsServer>> UnitsServer::Start(
    const Container& container, const UnitsService::Options& options, const NetAddress& address,
    const ServerSecurity& security) {
  auto impl = std::make_unique<Impl>();
  SHOAL_ASSIGN_OR_RETURN(impl->service, UnitsService::Create(container, options));
  const uint64_t bytes = impl->service->MessageBytes();
  SHOAL_ASSIGN_OR_RETURN(impl->server, GrpcServer::Start({&impl->service->grpc_service()},
                                                         {.address = address,
                                                          .max_request_bytes = kMaxCopyRequestBytes,
                                                          .security = security,
                                                          .limits = {.message_bytes = bytes}}));
  return std::unique_ptr<UnitsServer>(new UnitsServer(std::move(impl)));
}

UnitsServer::UnitsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
UnitsServer::~UnitsServer() = default;

const NetAddress& UnitsServer::address() const { return impl_->server->address(); }

}  // namespace shoal

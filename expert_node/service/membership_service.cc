#include "expert_node/service/membership_service.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_callback.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "expert_node/service/channel.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/membership.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kAnswerWithin(5);

}  // namespace

class MembershipService::Impl final : public v1::Membership::CallbackService {
 public:
  explicit Impl(SecurityPtr own) : own_(std::move(own)) {}

  grpc::ServerUnaryReactor* UpdateRevoked(grpc::CallbackServerContext* context,
                                          const v1::UpdateRevokedRequest* request,
                                          v1::UpdateRevokedReply* reply) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    const absl::Status status = request->list().size() > kMaxRevocationBytes
                                    ? absl::InvalidArgumentError(absl::StrCat(
                                          "list has ", request->list().size(), " bytes; at most ",
                                          kMaxRevocationBytes, " are accepted"))
                                    : own_->revoked().Replace(request->list());
    reply->set_number(static_cast<uint64_t>(own_->revoked().number()));
    reactor->Finish(ToGrpcStatus(status));
    return reactor;
  }

 private:
  const SecurityPtr own_;
};

MembershipService::MembershipService(SecurityPtr own)
    : impl_(std::make_unique<Impl>(std::move(own))) {}
MembershipService::~MembershipService() = default;
grpc::Service& MembershipService::grpc_service() { return *impl_; }

absl::Status BringRevoked(const std::string& address, const ChannelSecurity& security,
                          const std::string& pem) {
  const auto stub = v1::Membership::NewStub(MakeChannel(address, MakeChannelCredentials(security)));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::UpdateRevokedRequest request;
  request.set_list(pem);
  v1::UpdateRevokedReply reply;
  return FromGrpcStatus(stub->UpdateRevoked(&context, request, &reply));
}

}  // namespace shoal

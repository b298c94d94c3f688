#include "coordinator/service/join_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "common/sync/stop_wait.h"
#include "common/tls/authority.h"
#include "expert_node/service/connection_gate.h"
#include "expert_node/service/grpc_log.h"
#include "expert_node/service/grpc_server.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/refusal_log.h"
#include "shoal/v1/membership.grpc.pb.h"

namespace shoal {
namespace {

constexpr int kMostRequestBytes = 8 << 10;
constexpr int kMostMetadataBytes = 4 << 10;
constexpr size_t kMemoryBytes = size_t{32} << 20;
constexpr int kThreads = 2;
constexpr int kLinesAMinute = 60;
constexpr int kHandshakeMs = 10'000;
constexpr int kMostConnections = 64;
constexpr int kMostOfOne = 16;
constexpr absl::Duration kLookAgainAfter = absl::Milliseconds(100);
constexpr absl::Duration kListenerValidity = absl::Hours(24);
constexpr char kListenerName[] = "invite";

}  // namespace

class JoinServer::Service final : public v1::Join::Service {
 public:
  Service(PoolAuthority& authority, Invites& invites, Options options)
      : authority_(authority),
        invites_(invites),
        options_(std::move(options)),
        refusals_(options_.log, kLinesAMinute, Clock::Real()) {}

  RefusalLog& refusals() { return refusals_; }

  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinReply* reply) override {
    MutexLock lock(&mutex_);
    const absl::Status status = Admit(*request, reply);
    if (!status.ok()) {
      refusals_.Add(absl::StrCat(context->peer(), ": ", std::string(status.message())));
    }
    // The peer learns no more than that.
    return status.ok() ? grpc::Status::OK
                       : grpc::Status(static_cast<grpc::StatusCode>(status.code()), "refused");
  }

  // Whether the listener has no purpose any more, and why.
  bool Done(absl::Status& why) {
    MutexLock lock(&mutex_);
    if (wrong_ >= options_.most_wrong) {
      why = absl::ResourceExhaustedError(absl::StrCat(
          wrong_,
          " wrong secrets came: somebody guesses, and the invitations are closed; look who "
          "can reach this address before you invite again"));
      return true;
    }
    if (invites_.NumOpen(options_.now()) > 0) {
      return false;
    }
    if (const std::vector<std::string> expired = invites_.Expired(options_.now());
        !expired.empty()) {
      why = absl::DeadlineExceededError(absl::StrCat(
          "the time is over, and ", absl::StrJoin(expired, ", "), " did not join; invite again"));
    }
    return true;
  }
  absl::StatusOr<std::string> Invite(const std::string& name, absl::Time expires) {
    MutexLock lock(&mutex_);
    return invites_.Add(name, expires);
  }
  absl::Status Close() {
    MutexLock lock(&mutex_);
    return invites_.CloseAll(options_.now());
  }

 private:
  absl::Status Admit(const v1::JoinRequest& request, v1::JoinReply* reply)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time now = options_.now();
    if (now - last_try_ < options_.least_interval) {
      return absl::ResourceExhaustedError("too many tries in a second");
    }
    last_try_ = now;
    if (wrong_ >= options_.most_wrong) {
      return absl::UnauthenticatedError("too many wrong secrets came before");
    }
    const absl::StatusOr<std::string> name = invites_.Use(request.secret(), now);
    if (!name.ok()) {
      wrong_ += absl::IsUnauthenticated(name.status()) ? 1 : 0;
      return name.status();
    }
    SHOAL_ASSIGN_OR_RETURN(*reply->mutable_certificate(),
                           authority_.Issue(request.certificate_request(), TlsRole::kNode, *name,
                                            ValidFor(now, options_.certificate_validity), now));
    reply->set_authority(authority_.authority().certificate_pem());
    options_.log(absl::StrCat("node ", *name, " has joined"));
    return absl::OkStatus();
  }

  Mutex mutex_;  // also guards what the references stand for
  PoolAuthority& authority_;
  Invites& invites_;
  const Options options_;
  RefusalLog refusals_;
  absl::Time last_try_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  int wrong_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct JoinServer::Impl {
  NetAddress address;
  std::unique_ptr<Service> service = {};
  std::unique_ptr<GrpcLogTap> tap = {};
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor = {};
  std::unique_ptr<grpc::Server> server = {};
  std::unique_ptr<ConnectionGate> gate = {};
};

absl::StatusOr<std::unique_ptr<JoinServer>> JoinServer::Start(PoolAuthority& authority,
                                                              Invites& invites, Options options) {
  NetAddress address = options.address;
  SHOAL_ASSIGN_OR_RETURN(UniqueFd listener, ListenOn(address));
  // For this listener alone, and nowhere on disk.
  SHOAL_ASSIGN_OR_RETURN(std::string key, MakeKeyPem());
  SHOAL_ASSIGN_OR_RETURN(const std::string request, MakeRequestPem(key));
  SHOAL_ASSIGN_OR_RETURN(const std::string certificate,
                         authority.authority().Issue(request, TlsRole::kCoordinator, kListenerName,
                                                     ValidFor(absl::Now(), kListenerValidity)));
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back(
      {std::move(key), absl::StrCat(certificate, authority.authority().certificate_pem())});
  auto impl = std::make_unique<Impl>();
  impl->address = std::move(address);
  impl->service = std::make_unique<Service>(authority, invites, std::move(options));
  impl->tap = std::make_unique<GrpcLogTap>(impl->service->refusals());
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 1);
  builder.SetResourceQuota(grpc::ResourceQuota("join").Resize(kMemoryBytes));
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::MAX_POLLERS, kThreads);
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::SslServerCredentials(tls));
  builder.RegisterService(impl->service.get());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return absl::UnavailableError(absl::StrCat("listen on ", impl->address.ToString(),
                                               ": gRPC could not start its server there"));
  }
  SHOAL_ASSIGN_OR_RETURN(
      impl->gate, ConnectionGate::Start(std::move(listener),
                                        {.most = kMostConnections, .most_of_one = kMostOfOne},
                                        HandOverTo(*impl->acceptor), &impl->service->refusals()));
  return std::unique_ptr<JoinServer>(new JoinServer(std::move(impl)));
}

JoinServer::JoinServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

JoinServer::~JoinServer() {
  impl_->gate->Close();
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  impl_->server->Wait();
}

const NetAddress& JoinServer::address() const { return impl_->address; }

absl::StatusOr<std::string> JoinServer::Invite(const std::string& name, absl::Time expires) {
  return impl_->service->Invite(name, expires);
}

absl::Status JoinServer::Wait(const std::stop_token& stop) {
  absl::Status why;
  while (!impl_->service->Done(why)) {
    if (!WaitUnlessStopped(kLookAgainAfter, stop).ok()) {
      why = absl::CancelledError("interrupted; invitations that nobody used are closed");
      break;
    }
  }
  SHOAL_RETURN_IF_ERROR(impl_->service->Close());
  return why;
}

}  // namespace shoal

#include "expert_node/service/server_security.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "expert_node/service/call_watch.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/tls_verifier.h"

namespace shoal {
namespace {

constexpr int kLinesAMinute = 60;
constexpr char kAuthorization[] = "authorization";
constexpr char kPath[] = ":path";
constexpr absl::string_view kBearer = "Bearer ";

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

// What nobody but clients has a use for.
bool IsForClients(absl::string_view method) {
  return CheckMayCall(method, CallerKind::kApiKey).ok() &&
         !CheckMayCall(method, CallerKind::kNode).ok();
}

// The only value of a key; empty where there is none, or are several.
template <typename Metadata>
absl::string_view ValueOf(const Metadata& metadata, const char* key) {
  const auto [begin, end] = metadata.equal_range(key);
  return begin != end && std::next(begin) == end ? View(begin->second) : absl::string_view();
}

// As CallOrigin's. `connection` is empty before it is known.
std::string LimitName(const Caller& caller, const NetAddress& listens,
                      absl::string_view connection) {
  if (caller.kind != CallerKind::kStranger) {
    return caller.Who();
  }
  return IsLoopback(listens) ? "" : OriginOfConnection(connection);
}

// Looks at a client's certificate in the handshake.
class ClientVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit ClientVerifier(ServerGuard& guard) : guard_(guard) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const absl::string_view pem = View(request->peer_cert());
    if (pem.empty() && guard_.security().keys != nullptr) {
      return true;  // a key may follow
    }
    const absl::Status verified = guard_.security().own->Verify(pem, TlsSide::kClient).status();
    if (!verified.ok()) {
      guard_.log().Add(absl::StrCat("a connection: ", std::string(verified.message())));
      *status = {grpc::StatusCode::UNAUTHENTICATED, "refused"};
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  ServerGuard& guard_;
};

// Looks at every call before its message is read.
class CallCheck final : public grpc::AuthMetadataProcessor {
 public:
  explicit CallCheck(ServerGuard& guard) : guard_(guard) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context,
                       OutputMetadata* /*consumed*/, OutputMetadata* /*response*/) override {
    const absl::string_view method = ValueOf(metadata, kPath);
    const std::string pem = PeerCertificate(*context);
    const absl::string_view authorization = ValueOf(metadata, kAuthorization);
    absl::Status allowed = guard_.CheckCall(method, pem, authorization);
    if (allowed.ok()) {
      return CheckLimits(method, pem, authorization);
    }
    guard_.log().Add(std::string(allowed.message()));
    return absl::IsUnauthenticated(allowed)
               ? grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "not authenticated")
               : grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "not allowed");
  }

 private:
  grpc::Status CheckLimits(absl::string_view method, absl::string_view pem,
                           absl::string_view authorization) {
    const absl::StatusOr<Caller> caller = IdentifyCaller(guard_.security(), pem, authorization);
    const absl::Status within = guard_.limits().Begin(
        CallKindOf(method), LimitName(caller.value_or(Caller{}), guard_.listens(), ""),
        Clock::Real().Now());
    if (!within.ok()) {
      guard_.log().Add(within.message());
    }
    return ToGrpcStatus(within);
  }

  ServerGuard& guard_;
};

// Watches a call from gRPC's side.
class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(ServerGuard& guard, grpc::ServerContextBase& context, CallKind kind)
      : guard_(guard), context_(context), kind_(kind) {}

  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods->QueryInterceptionHookPoint(Point::POST_RECV_INITIAL_METADATA)) {
      if (!watch_) {
        watch_.emplace(&guard_, context_, kind_);
      }
    } else if (watch_ && !methods->QueryInterceptionHookPoint(Point::PRE_SEND_CANCEL)) {
      Note(*methods);  // a cancel has nothing of what it asks for
    }
    methods->Proceed();
  }

 private:
  void Note(grpc::experimental::InterceptorBatchMethods& methods) {
    using Point = grpc::experimental::InterceptionHookPoints;
    if (methods.QueryInterceptionHookPoint(Point::PRE_SEND_MESSAGE)) {
      watch_->BeginWrite(methods.GetSerializedSendMessage()->Length());
    }
    if (methods.QueryInterceptionHookPoint(Point::POST_SEND_MESSAGE)) {
      watch_->EndWrite();
    }
    if (methods.QueryInterceptionHookPoint(Point::POST_RECV_MESSAGE)) {
      watch_->EndRead();
    } else if (methods.GetRecvMessage() != nullptr) {
      watch_->BeginRead();  // gRPC has no point for it
    }
  }

  ServerGuard& guard_;
  grpc::ServerContextBase& context_;
  const CallKind kind_;
  std::optional<CallWatch> watch_;
};

class CallInterceptors final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  CallInterceptors(ServerGuard& guard, std::set<CallKind> watched_by_service)
      : guard_(guard), watched_by_service_(std::move(watched_by_service)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override {
    const CallKind kind = CallKindOf(info->method());
    if (watched_by_service_.contains(kind)) {
      return nullptr;
    }
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): gRPC owns it
    return new CallInterceptor(guard_, *info->server_context(), kind);
  }

 private:
  ServerGuard& guard_;
  const std::set<CallKind> watched_by_service_;
};

CallerKind KindOf(TlsRole role) {
  switch (role) {
    case TlsRole::kCoordinator:
      return CallerKind::kCoordinator;
    case TlsRole::kNode:
      return CallerKind::kNode;
    case TlsRole::kClient:
      return CallerKind::kClient;
  }
  return CallerKind::kStranger;
}

}  // namespace

ServerGuard::ServerGuard(ServerSecurity security, const ServerLimits& limits,
                         const NetAddress& listens)
    : security_(std::move(security)),
      patience_(limits.patience),
      listens_(listens),
      log_(security_.log, kLinesAMinute, Clock::Real()),
      call_limits_(limits.calls) {}

absl::StatusOr<Caller> IdentifyCaller(const ServerSecurity& security, absl::string_view pem,
                                      absl::string_view authorization) {
  if (!pem.empty() && security.own != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(Certificate certificate, security.own->Verify(pem, TlsSide::kClient));
    return Caller{KindOf(certificate.role), std::move(certificate.name),
                  std::move(certificate.serial), certificate.not_after};
  }
  if (authorization.empty() || security.keys == nullptr) {
    return Caller{};
  }
  std::optional<std::string> name;
  if (absl::ConsumePrefix(&authorization, kBearer)) {
    name = security.keys->NameOf(authorization);
  }
  if (!name.has_value()) {
    return absl::UnauthenticatedError("the API key is none of ours, or was revoked");
  }
  return Caller{CallerKind::kApiKey, *std::move(name), "", absl::InfiniteFuture()};
}

CallOrigin OriginOf(const grpc::ServerContextBase& call, const ServerSecurity& security,
                    const NetAddress& listens) {
  absl::StatusOr<Caller> caller = IdentifyCaller(security, PeerCertificate(*call.auth_context()),
                                                 ValueOf(call.client_metadata(), kAuthorization));
  CallOrigin origin;
  // Who is not good any more, a moment after it was let in, is cut at once.
  origin.caller.not_after = absl::InfinitePast();
  if (caller.ok()) {
    origin.caller = *std::move(caller);
  }
  origin.connection = ConnectionOfPeer(call.peer());
  origin.limit_name = LimitName(origin.caller, listens, origin.connection);
  return origin;
}

absl::Status ServerGuard::CheckCall(absl::string_view method, absl::string_view pem,
                                    absl::string_view authorization) const {
  if (security_.own == nullptr && (security_.keys == nullptr || !IsForClients(method))) {
    return absl::OkStatus();  // without TLS
  }
  absl::StatusOr<Caller> caller = IdentifyCaller(security_, pem, authorization);
  if (!caller.ok()) {
    return absl::UnauthenticatedError(
        absl::StrCat(std::string(method), ": ", std::string(caller.status().message())));
  }
  absl::Status allowed = CheckMayCall(method, caller->kind);
  if (allowed.ok()) {
    return allowed;
  }
  const std::string message = absl::StrCat(caller->Who(), ": ", std::string(allowed.message()));
  return caller->kind == CallerKind::kStranger ? absl::UnauthenticatedError(message)
                                               : absl::PermissionDeniedError(message);
}

bool ServerGuard::IsOut(const Caller& caller) const {
  if (caller.not_after < absl::Now()) {
    return true;
  }
  if (!caller.serial.empty()) {
    return security_.own->revoked().IsRevoked(caller.serial);
  }
  return caller.kind == CallerKind::kApiKey && !security_.keys->Has(caller.name);
}

absl::Status ServerGuard::CheckLive(const LiveCall& call, absl::Time now) {
  constexpr double kSlowestBytesPerSecond = 1e6;
  if (IsOut(call.caller)) {
    log_.Add(absl::StrCat("an open call of ", call.caller.Who(),
                          " was cut: it is revoked or has expired"));
    return absl::CancelledError("cut");
  }
  const absl::Duration write =
      patience_.write +
      absl::Seconds(static_cast<double>(call.written_bytes.load()) / kSlowestBytesPerSecond);
  if (call.writing.Lasts(now) > write) {
    return absl::CancelledError(
        absl::StrCat("a message was not taken for ", absl::FormatDuration(write)));
  }
  if (call.reading.Lasts(now) > patience_.read) {
    return absl::DeadlineExceededError(
        absl::StrCat("no message came for ", absl::FormatDuration(patience_.read)));
  }
  return absl::OkStatus();
}

void ServerGuard::Tend() {
  const absl::Time now = Clock::Real().Now();
  live_.Cut([this, now](const LiveCall& call) { return CheckLive(call, now); });
}

std::shared_ptr<grpc::ServerCredentials> ServerGuard::MakeCredentials() {
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (security_.own == nullptr && !IsLoopback(listens_)) {
    return grpc::InsecureServerCredentials();  // these take no processor
  }
  if (security_.own == nullptr) {
    credentials = grpc::experimental::LocalServerCredentials(LOCAL_TCP);
  } else {
    const Identity& identity = security_.own->identity();
    grpc::experimental::TlsServerCredentialsOptions options(
        std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
            identity.authority_pem, std::vector<grpc::experimental::IdentityKeyCertPair>{
                                        {identity.key_pem, identity.certificate_pem}}));
    options.watch_root_certs();
    options.watch_identity_key_cert_pairs();
    // Asked for and left to the verifier, which knows revocations and writes down why; gRPC itself
    // would tell the peer in an alert. Who shows none is refused there too, and again at each call.
    options.set_cert_request_type(GRPC_SSL_REQUEST_CLIENT_CERTIFICATE_BUT_DONT_VERIFY);
    options.set_check_call_host(false);
    options.set_certificate_verifier(MakeVerifier<ClientVerifier>(*this));
    credentials = grpc::experimental::TlsServerCredentials(options);
  }
  credentials->SetAuthMetadataProcessor(std::make_shared<CallCheck>(*this));
  return credentials;
}

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
ServerGuard::MakeInterceptors(std::set<CallKind> watched_by_service) {
  return std::make_unique<CallInterceptors>(*this, std::move(watched_by_service));
}

}  // namespace shoal

// How a server is protected: who gets through the handshake, who may call what, and who is cut.
#ifndef SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_
#define SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/net/address.h"
#include "common/tls/api_keys.h"
#include "expert_node/service/authorization.h"
#include "expert_node/service/call_limits.h"
#include "expert_node/service/connection_gate.h"
#include "expert_node/service/live_calls.h"
#include "expert_node/service/refusal_log.h"
#include "expert_node/service/transport_security.h"

namespace grpc {
class ServerContextBase;
class ServerCredentials;
namespace experimental {
class ServerInterceptorFactoryInterface;
}  // namespace experimental
}  // namespace grpc

namespace shoal {

struct ServerSecurity {
  SecurityPtr own;  // null: no TLS
  // Null: every caller shows a certificate. Else one that has none may use the methods of
  // authorization.h that a key is good for. Without TLS the server has to listen on loopback; there
  // a key is needed for these methods alone.
  std::shared_ptr<ApiKeyFile> keys;
  RefusalLog::Write log = [](absl::string_view /*line*/) {};  // for the server's people

  bool any() const { return own != nullptr || keys != nullptr; }
};

// How long a server waits for the other end of a stream.
struct StreamPatience {
  // For a message to be taken, and a second more for each megabyte of it. Keepalive does not end a
  // client that answers pings and never reads.
  absl::Duration write = absl::Seconds(60);
  // For one that is to come. Coordinators send pings.
  absl::Duration read = absl::Seconds(60);
};

// What a server holds at most of what connections bring that is no whole message yet, of all together.
inline constexpr uint64_t kConnectionBytes = uint64_t{32} << 20;

// What one peer may use of a server.
struct ServerLimits {
  CallLimits::Changes calls = {};  // of the table of call_limits.h
  StreamPatience patience = {};
  ConnectionGate::Options connections = {};
  // What its services' messages may take in all. With kConnectionBytes it is gRPC's limit: when that is
  // reached it reads no further, and then gives up streams.
  uint64_t message_bytes = 0;
};

// Who calls, by the certificate (PEM, of the handshake; empty without one) and the metadata
// "authorization" (empty without any).
//   UNAUTHENTICATED  the certificate is not good, or there is no such key
absl::StatusOr<Caller> IdentifyCaller(const ServerSecurity& security, absl::string_view pem,
                                      absl::string_view authorization);

// Where a call comes from.
struct CallOrigin {
  Caller caller;
  std::string connection;  // ConnectionOfPeer's
  // What limits know the caller by: its certificate or key, else where its connection comes from. Empty
  // on loopback, where programs of one machine are not told apart.
  std::string limit_name;
};
// `listens` is where the server does.
CallOrigin OriginOf(const grpc::ServerContextBase& call, const ServerSecurity& security,
                    const NetAddress& listens);

// What a server needs of it. Thread-safe; outlives the server.
class ServerGuard {
 public:
  // `listens` is where the server does.
  ServerGuard(ServerSecurity security, const ServerLimits& limits, const NetAddress& listens);

  std::shared_ptr<grpc::ServerCredentials> MakeCredentials();
  // Has a CallWatch for every open call, but those that their services have one for.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors(
      std::set<CallKind> watched_by_service);
  // The server's, once it has one; outlives all calls.
  void SetGate(ConnectionGate* gate) { gate_ = gate; }
  // Cuts the calls of those who are not members any more (revoked, expired, or their key is gone), and
  // those that hang. Called about twice a second.
  void Tend();

  // Whether this caller may call that method. PERMISSION_DENIED, UNAUTHENTICATED: why not.
  absl::Status CheckCall(absl::string_view method, absl::string_view pem,
                         absl::string_view authorization) const;
  RefusalLog& log() { return log_; }
  LiveCalls& live() { return live_; }
  CallLimits& limits() { return call_limits_; }
  ConnectionGate* gate() { return gate_; }
  const ServerSecurity& security() const { return security_; }
  const NetAddress& listens() const { return listens_; }

 private:
  bool IsOut(const Caller& caller) const;
  // How a call ends that must not go on; OK where it may.
  absl::Status CheckLive(const LiveCall& call, absl::Time now);

  const ServerSecurity security_;
  const StreamPatience patience_;
  const NetAddress listens_;
  RefusalLog log_;
  LiveCalls live_;
  CallLimits call_limits_;
  std::atomic<ConnectionGate*> gate_ = nullptr;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_

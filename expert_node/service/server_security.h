// How a server is protected: who gets through the handshake, who may call what, and who is cut.
#ifndef SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_
#define SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tls/api_keys.h"
#include "expert_node/service/authorization.h"
#include "expert_node/service/live_calls.h"
#include "expert_node/service/refusal_log.h"
#include "expert_node/service/transport_security.h"

namespace grpc {
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

// What a server needs of it. Thread-safe; outlives the server.
class ServerGuard {
 public:
  explicit ServerGuard(ServerSecurity security);

  std::shared_ptr<grpc::ServerCredentials> MakeCredentials();
  // Keeps account of the open calls.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeInterceptors();
  // Cuts the calls of those who are not members any more: revoked, expired, or their key is gone.
  // Called about twice a second.
  void Tend();

  // Who calls, by the certificate (PEM, of the handshake; empty without one) and the metadata
  // "authorization" (empty without any).
  //   UNAUTHENTICATED  the certificate is not good, or there is no such key
  absl::StatusOr<Caller> Identify(absl::string_view pem, absl::string_view authorization) const;
  // Whether this caller may call that method. PERMISSION_DENIED, UNAUTHENTICATED: why not.
  absl::Status CheckCall(absl::string_view method, absl::string_view pem,
                         absl::string_view authorization) const;
  RefusalLog& log() { return log_; }
  LiveCalls& live() { return live_; }
  const ServerSecurity& security() const { return security_; }

 private:
  bool IsOut(const Caller& caller) const;

  const ServerSecurity security_;
  RefusalLog log_;
  LiveCalls live_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_SERVER_SECURITY_H_

// What protects the connections of a process in a pool: its identity, whom it believes, and whom not
// any more.
#ifndef SHOAL_EXPERT_NODE_SERVICE_TRANSPORT_SECURITY_H_
#define SHOAL_EXPERT_NODE_SERVICE_TRANSPORT_SECURITY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sync/clock.h"
#include "common/tls/identity.h"
#include "common/tls/revocation.h"
#include "expert_node/service/authorization.h"

namespace grpc {
class AuthContext;
class ChannelCredentials;
}  // namespace grpc

namespace shoal {

// Thread-safe.
class TransportSecurity {
 public:
  // From an identity directory (common/tls/identity.h). `clock` outlives the object.
  //   FAILED_PRECONDITION  the certificate has none of the roles; says which it has; or
  //                        RevocationFile::Open's
  //   and LoadIdentity's errors
  static absl::StatusOr<std::shared_ptr<TransportSecurity>> Load(const std::string& directory,
                                                                 std::vector<TlsRole> roles,
                                                                 const Clock& clock);

  const Identity& identity() const { return identity_; }
  RevocationFile& revoked() const { return *revoked_; }

  // Who holds this certificate, once it is known to be good: signed by this pool's authority for
  // that side of a connection, valid now, and not revoked.
  //   UNAUTHENTICATED, INVALID_ARGUMENT  why not
  absl::StatusOr<Certificate> Verify(absl::string_view pem, TlsSide side) const;

  // A line for people where the identity expires within a month; empty otherwise.
  std::string ExpiryWarning() const;

 private:
  TransportSecurity(Identity identity, std::unique_ptr<RevocationFile> revoked);

  const Identity identity_;
  const std::unique_ptr<RevocationFile> revoked_;
};

// The certificate that the other end of a call showed, in PEM; empty without one.
std::string PeerCertificate(const grpc::AuthContext& context);

using SecurityPtr = std::shared_ptr<const TransportSecurity>;

// How a channel is protected, and whom it may reach.
struct ChannelSecurity {
  enum class Peer { kNode, kCoordinator, kLender };  // a lender is either
  SecurityPtr own;                                   // null: in plain text, to anybody
  Peer peer = Peer::kNode;
  std::string name;  // of a node, as the plan has it; empty: any
};

// For grpc::CreateCustomChannel. A server that is not the one that is wanted is refused before
// anything is sent to it; the channel's error says why.
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const ChannelSecurity& security);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_TRANSPORT_SECURITY_H_

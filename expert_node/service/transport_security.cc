#include "expert_node/service/transport_security.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/tls_verifier.h"

namespace shoal {
namespace {

constexpr char kPeerCertificate[] = "x509_pem_cert";  // gRPC's name of the property
constexpr absl::Duration kWarnBefore = absl::Hours(24 * 30);

absl::string_view View(const grpc::string_ref& text) { return {text.data(), text.size()}; }

absl::Status CheckPeer(const ChannelSecurity& wanted, absl::string_view pem) {
  SHOAL_ASSIGN_OR_RETURN(const Certificate peer, wanted.own->Verify(pem, TlsSide::kServer));
  const bool node = peer.role == TlsRole::kNode;
  const bool coordinator = peer.role == TlsRole::kCoordinator;
  const bool fits = wanted.peer == ChannelSecurity::Peer::kNode          ? node
                    : wanted.peer == ChannelSecurity::Peer::kCoordinator ? coordinator
                                                                         : node || coordinator;
  if (!fits) {
    return absl::UnauthenticatedError(absl::StrCat(
        "it is ", peer.Who(), ", and a ",
        wanted.peer == ChannelSecurity::Peer::kCoordinator ? "coordinator" : "node", " is wanted"));
  }
  if (node && !wanted.name.empty() && peer.name != wanted.name) {
    return absl::UnauthenticatedError(
        absl::StrCat("it is ", peer.Who(), ", and the plan has node ", wanted.name, " there"));
  }
  return absl::OkStatus();
}

class ServerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit ServerVerifier(ChannelSecurity wanted) : wanted_(std::move(wanted)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    *status = ToGrpcStatus(CheckPeer(wanted_, View(request->peer_cert())));
    return true;  // done
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const ChannelSecurity wanted_;
};

}  // namespace

TransportSecurity::TransportSecurity(Identity identity, std::unique_ptr<RevocationFile> revoked)
    : identity_(std::move(identity)), revoked_(std::move(revoked)) {}

absl::StatusOr<std::shared_ptr<TransportSecurity>> TransportSecurity::Load(
    const std::string& directory, std::vector<TlsRole> roles, const Clock& clock) {
  SHOAL_ASSIGN_OR_RETURN(Identity identity, LoadIdentity(directory, absl::Now()));
  if (std::find(roles.begin(), roles.end(), identity.certificate.role) == roles.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is the identity of ", identity.certificate.Who(), ", and that of a ",
        absl::StrJoin(
            roles, " or ",
            [](std::string* out, TlsRole role) { absl::StrAppend(out, TlsRoleName(role)); }),
        " is needed here"));
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<RevocationFile> revoked,
                         RevocationFile::Open(absl::StrCat(directory, "/", kRevokedFile),
                                              identity.authority_pem, clock));
  return std::shared_ptr<TransportSecurity>(
      new TransportSecurity(std::move(identity), std::move(revoked)));
}

absl::StatusOr<Certificate> TransportSecurity::Verify(absl::string_view pem, TlsSide side) const {
  if (pem.empty()) {
    return absl::UnauthenticatedError("it shows no certificate");
  }
  SHOAL_ASSIGN_OR_RETURN(Certificate peer,
                         VerifyCertificate(pem, identity_.authority_pem, side, absl::Now()));
  if (peer.pool != identity_.certificate.pool) {
    return absl::UnauthenticatedError(absl::StrCat("it is of the pool ", peer.pool));
  }
  if (revoked_->IsRevoked(peer.serial)) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate of ", peer.Who(), " is revoked"));
  }
  return peer;
}

std::string PeerCertificate(const grpc::AuthContext& context) {
  const std::vector<grpc::string_ref> values = context.FindPropertyValues(kPeerCertificate);
  return values.size() == 1 ? std::string(View(values.front())) : "";
}

std::string TransportSecurity::ExpiryWarning() const {
  const absl::Time end = identity_.certificate.not_after;
  return end - absl::Now() > kWarnBefore
             ? ""
             : absl::StrCat("warning: the certificate of ", identity_.certificate.Who(),
                            " expires on ", absl::FormatTime("%Y-%m-%d", end, absl::UTCTimeZone()),
                            "; get a new one before");
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const ChannelSecurity& security) {
  if (security.own == nullptr) {
    return grpc::InsecureChannelCredentials();
  }
  const Identity& identity = security.own->identity();
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
          identity.authority_pem, std::vector<grpc::experimental::IdentityKeyCertPair>{
                                      {identity.key_pem, identity.certificate_pem}}));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  // The verifier does all of it, so that the error can say what is wrong. gRPC compares names with
  // the address that was dialled; ours are of the pool.
  options.set_verify_server_certs(false);
  options.set_check_call_host(false);
  options.set_certificate_verifier(MakeVerifier<ServerVerifier>(security));
  return grpc::experimental::TlsCredentials(options);
}

}  // namespace shoal

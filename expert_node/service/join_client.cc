#include "expert_node/service/join_client.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/tls/authority.h"
#include "common/tls/certificate.h"
#include "expert_node/service/channel.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/tls_verifier.h"
#include "shoal/v1/membership.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kAnswerWithin(15);
constexpr absl::Duration kAskAgainAfter = absl::Milliseconds(150);
constexpr int kMostReplyBytes = 64 << 10;
constexpr absl::string_view kBegin = "-----BEGIN CERTIFICATE-----";

// The certificate with that fingerprint among those of a chain in PEM; empty where there is none.
std::string FindByFingerprint(absl::string_view chain, const std::string& fingerprint) {
  while (true) {
    const size_t begin = chain.find(kBegin);
    if (begin == absl::string_view::npos) {
      return "";
    }
    chain.remove_prefix(begin);
    const absl::StatusOr<std::string> found = FingerprintOf(chain);
    if (found.ok() && *found == fingerprint) {
      return std::string(chain);
    }
    chain.remove_prefix(kBegin.size());
  }
}

absl::Status CheckInviter(absl::string_view leaf, absl::string_view chain,
                          const std::string& fingerprint) {
  const std::string authority = FindByFingerprint(chain, fingerprint);
  if (authority.empty()) {
    return absl::UnauthenticatedError(
        "what listens there is not who invited: another authority vouches for it");
  }
  SHOAL_ASSIGN_OR_RETURN(const Certificate certificate,
                         VerifyCertificate(leaf, authority, TlsSide::kServer, absl::Now()));
  return certificate.role == TlsRole::kCoordinator
             ? absl::OkStatus()
             : absl::UnauthenticatedError(
                   absl::StrCat("what listens there is ", certificate.Who()));
}

class InviterVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  explicit InviterVerifier(std::string fingerprint) : fingerprint_(std::move(fingerprint)) {}
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const auto view = [](const grpc::string_ref& text) {
      return absl::string_view(text.data(), text.size());
    };
    *status = ToGrpcStatus(CheckInviter(view(request->peer_cert()),
                                        view(request->peer_cert_full_chain()), fingerprint_));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::string fingerprint_;
};

std::shared_ptr<grpc::Channel> Dial(const InviteCode& code) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.set_verify_server_certs(false);  // all of it is the verifier's
  options.set_check_call_host(false);
  options.set_certificate_verifier(MakeVerifier<InviterVerifier>(code.authority_fingerprint));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostReplyBytes);
  return MakeChannel(code.address, grpc::experimental::TlsCredentials(options), arguments);
}

// Several machines may join at the same moment, and the listener takes them one after the other.
absl::Status Ask(const InviteCode& code, const v1::JoinRequest& request, v1::JoinReply& reply) {
  const auto stub = v1::Join::NewStub(Dial(code));
  const auto deadline = std::chrono::system_clock::now() + kAnswerWithin;
  while (true) {
    grpc::ClientContext context;
    context.set_deadline(deadline);
    absl::Status asked = FromGrpcStatus(stub->Join(&context, request, &reply));
    if (!absl::IsResourceExhausted(asked) || std::chrono::system_clock::now() > deadline) {
      return asked;
    }
    absl::SleepFor(kAskAgainAfter);
  }
}

}  // namespace

absl::StatusOr<Identity> JoinPool(const InviteCode& code, absl::Time now) {
  SHOAL_ASSIGN_OR_RETURN(std::string key, MakeKeyPem());
  v1::JoinRequest request;
  request.set_secret(code.secret);
  SHOAL_ASSIGN_OR_RETURN(*request.mutable_certificate_request(), MakeRequestPem(key));
  v1::JoinReply reply;
  const absl::Status asked = Ask(code, request, reply);
  if (absl::IsUnauthenticated(asked)) {
    return absl::UnauthenticatedError(
        "the invitation is not accepted: it was used, has expired, or is of another listener; "
        "`shoal cluster invite` says which, and makes a new one");
  }
  SHOAL_RETURN_IF_ERROR(Annotate(asked, absl::StrCat("ask for a certificate at ", code.address)));
  const absl::StatusOr<std::string> fingerprint = FingerprintOf(reply.authority());
  if (!fingerprint.ok() || *fingerprint != code.authority_fingerprint) {
    return absl::DataLossError("the answer has another authority than the invitation");
  }
  absl::StatusOr<Identity> identity =
      MakeIdentity(std::move(key), reply.certificate(), reply.authority(), now);
  if (!identity.ok() || identity->certificate.role != TlsRole::kNode) {
    return absl::DataLossError(absl::StrCat("the answer is no certificate of a node: ",
                                            std::string(identity.status().message())));
  }
  return identity;
}

}  // namespace shoal

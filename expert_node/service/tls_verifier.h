// gRPC's verifiers of certificates, made.
#ifndef SHOAL_EXPERT_NODE_SERVICE_TLS_VERIFIER_H_
#define SHOAL_EXPERT_NODE_SERVICE_TLS_VERIFIER_H_

#include <grpcpp/security/tls_certificate_verifier.h>

#include <memory>
#include <utility>

namespace shoal {

// A Verifier (grpc::experimental::ExternalCertificateVerifier) that gRPC owns.
template <typename Verifier, typename... Args>
std::shared_ptr<grpc::experimental::CertificateVerifier> MakeVerifier(Args&&... args) {
#ifdef __clang_analyzer__
  return nullptr;  // it takes what gRPC's header does there for a leak
#else
  return grpc::experimental::ExternalCertificateVerifier::Create<Verifier>(
      std::forward<Args>(args)...);
#endif
}

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_TLS_VERIFIER_H_

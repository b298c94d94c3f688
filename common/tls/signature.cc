#include "common/tls/signature.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

#include "common/status/status_macros.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

struct Deleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using DigestHandle = std::unique_ptr<EVP_MD_CTX, Deleter>;

const unsigned char* Bytes(absl::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

absl::StatusOr<std::string> Sign(absl::string_view key_pem, absl::string_view text) {
  SHOAL_ASSIGN_OR_RETURN(const KeyHandle key, KeyFromPem(key_pem));
  const DigestHandle context(EVP_MD_CTX_new());
  size_t size = 0;
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, Bytes(text), text.size()) != 1) {
    return OpensslError("sign");
  }
  std::string signature(size, '\0');
  if (EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size,
                     Bytes(text), text.size()) != 1) {
    return OpensslError("sign");
  }
  signature.resize(size);
  return signature;
}

absl::Status CheckSignature(absl::string_view certificate_pem, absl::string_view text,
                            absl::string_view signature) {
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle certificate, CertificateFromPem(certificate_pem));
  const DigestHandle context(EVP_MD_CTX_new());
  if (context == nullptr || EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr,
                                                 X509_get0_pubkey(certificate.get())) != 1) {
    return OpensslError("check a signature");
  }
  if (EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(text),
                       text.size()) != 1) {
    (void)OpensslError("");
    return absl::UnauthenticatedError("the signature is not that of the certificate's key");
  }
  return absl::OkStatus();
}

}  // namespace shoal

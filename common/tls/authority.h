// The authority of a pool: the key that signs who is a coordinator, a node or a client of it.
#ifndef SHOAL_COMMON_TLS_AUTHORITY_H_
#define SHOAL_COMMON_TLS_AUTHORITY_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tls/certificate.h"
#include "common/tls/openssl_handles.h"

namespace shoal {

struct Validity {
  absl::Time not_before;
  absl::Time not_after;
};
// From a little before `now`, because clocks differ.
Validity ValidFor(absl::Time now, absl::Duration duration);

// A new private key in PEM, and a request for a certificate (PKCS#10) signed with it. The request
// says nothing but the key: name and role are the authority's decision.
absl::StatusOr<std::string> MakeKeyPem();
absl::StatusOr<std::string> MakeRequestPem(absl::string_view key_pem);

// Thread-compatible.
class Authority {
 public:
  // A new one: a key and a certificate that it signs itself, which may sign others but no further
  // authorities. INVALID_ARGUMENT where CheckNodeName refuses the pool's name.
  static absl::StatusOr<Authority> Make(const std::string& pool, const Validity& validity);
  // From PEM. INVALID_ARGUMENT: a text cannot be read, the key is another's, or the certificate is
  // none of an authority.
  static absl::StatusOr<Authority> FromPem(absl::string_view key_pem,
                                           absl::string_view certificate_pem);

  const std::string& pool() const { return pool_; }
  const std::string& certificate_pem() const { return certificate_pem_; }
  absl::StatusOr<std::string> KeyPem() const;

  // A certificate in PEM for the key of a PKCS#10 request, whose signature is checked and of which
  // nothing else is taken.
  //   INVALID_ARGUMENT  the request cannot be read, is not signed with its own key, its key is not
  //                     ECDSA on P-256, or CheckNodeName refuses the name
  absl::StatusOr<std::string> Issue(absl::string_view request_pem, TlsRole role,
                                    const std::string& name, const Validity& validity) const;

  // The list of the certificates that are revoked, signed, in PEM (X.509 CRL). Of two lists the one
  // with the larger `number` holds. Serials are hexadecimal, as Certificate has them.
  absl::StatusOr<std::string> SignRevocations(int64_t number, std::span<const std::string> serials,
                                              absl::Time now) const;

 private:
  Authority(KeyHandle key, CertificateHandle certificate, std::string pool,
            std::string certificate_pem);

  KeyHandle key_;
  CertificateHandle certificate_;
  std::string pool_;
  std::string certificate_pem_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_AUTHORITY_H_

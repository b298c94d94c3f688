// Certificates of a pool: who somebody is, in a form that only the pool's authority can make.
//
// The role and the name are in the certificate, as one URI among its alternative names:
//   shoal://POOL/coordinator/NAME   shoal://POOL/node/NAME   shoal://POOL/client/NAME
// beside a dNSName, NAME.ROLE.shoal, for clients that check a server's name themselves.
#ifndef SHOAL_COMMON_TLS_CERTIFICATE_H_
#define SHOAL_COMMON_TLS_CERTIFICATE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace shoal {

enum class TlsRole { kCoordinator, kNode, kClient };

// "coordinator", "node" or "client"; and back, nothing for any other text.
absl::string_view TlsRoleName(TlsRole role);
std::optional<TlsRole> ParseTlsRole(absl::string_view text);

struct Certificate {
  std::string pool;
  TlsRole role = TlsRole::kClient;
  std::string name;
  absl::Time not_before;
  absl::Time not_after;
  std::string serial;       // lower-case hexadecimal digits
  std::string fingerprint;  // SHA-256 of its DER, 64 lower-case hexadecimal digits

  // "node attic", for messages.
  std::string Who() const;
};

// "shoal://POOL/ROLE/NAME" and "NAME.ROLE.shoal".
std::string CertificateUri(absl::string_view pool, TlsRole role, absl::string_view name);
std::string CertificateHost(TlsRole role, absl::string_view name);

// What the first certificate of a PEM text says, without checking who signed it.
//   INVALID_ARGUMENT  there is none, or it names no role of a pool
absl::StatusOr<Certificate> ParseCertificate(absl::string_view pem);

// SHA-256 of the first certificate's DER, 64 hexadecimal digits. INVALID_ARGUMENT where there is none.
absl::StatusOr<std::string> FingerprintOf(absl::string_view pem);

enum class TlsSide { kServer, kClient };

// What a certificate says, once it is known to be good: signed by the authority, directly; made for
// this side of a connection; valid at `now`. Thread-safe.
//   UNAUTHENTICATED   the reason, for the log of whoever checks
//   INVALID_ARGUMENT  as ParseCertificate; or the authority's certificate cannot be read
absl::StatusOr<Certificate> VerifyCertificate(absl::string_view pem,
                                              absl::string_view authority_pem, TlsSide side,
                                              absl::Time now);

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_CERTIFICATE_H_

// A member's identity as a directory: what it proves itself with, and whom it believes.
//
//   key.pem          its private key; nobody else may read it (0600)
//   certificate.pem  who it is, signed by the authority
//   authority.pem    the authority's certificate
//   revoked.pem      which certificates are revoked; there once something was
#ifndef SHOAL_COMMON_TLS_IDENTITY_H_
#define SHOAL_COMMON_TLS_IDENTITY_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/tls/certificate.h"

namespace shoal {

inline constexpr char kKeyFile[] = "key.pem";
inline constexpr char kCertificateFile[] = "certificate.pem";
inline constexpr char kAuthorityFile[] = "authority.pem";
inline constexpr char kRevokedFile[] = "revoked.pem";

struct Identity {
  std::string key_pem;
  std::string certificate_pem;
  std::string authority_pem;
  Certificate certificate;  // what certificate_pem says
};

// INVALID_ARGUMENT: a text cannot be read, or the key is not that of the certificate.
// UNAUTHENTICATED: the authority did not sign the certificate, or it is not valid at `now`.
absl::StatusOr<Identity> MakeIdentity(std::string key_pem, std::string certificate_pem,
                                      std::string authority_pem, absl::Time now);

// Reads one. Errors name the file and what to do.
//   NOT_FOUND            a file is missing
//   FAILED_PRECONDITION  others may read the key; or what MakeIdentity refuses
absl::StatusOr<Identity> LoadIdentity(const std::string& directory, absl::Time now);

// Makes the directory (0700), whole or not at all. ALREADY_EXISTS where it is there and not empty.
absl::Status StoreIdentity(const std::string& directory, const Identity& identity);

// OK where StoreIdentity would not refuse the place; to be asked before something is made for it.
absl::Status CheckIdentityPlace(const std::string& directory);

// Reads a file that nobody but its owner may read. FAILED_PRECONDITION, with the path and chmod's
// line, where others may; RESOURCE_EXHAUSTED where it is larger than such a file ever is.
absl::StatusOr<std::string> ReadSecretFile(const std::string& path);
// Replaces such a file, or makes it (0600), atomically.
absl::Status WriteSecretFile(const std::string& path, absl::string_view content);
// Makes a directory for secrets (0700), whole or not at all: `fill` puts its files into a place beside
// it, which then takes the name, or is removed where something failed. `target` has no slash at its
// end, and is not there or empty.
absl::Status StoreSecretDirectory(const std::string& target,
                                  absl::FunctionRef<absl::Status(const std::string& staging)> fill);
// Makes an empty directory for secrets (0700), durably. ALREADY_EXISTS where it is there and not empty.
absl::Status MakeSecretDirectory(const std::string& path);

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_IDENTITY_H_

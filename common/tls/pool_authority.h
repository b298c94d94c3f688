// The directory of a pool's authority, as `shoal cluster init` makes it:
//
//   DIR/authority/key.pem          the authority's private key (0600)
//   DIR/authority/certificate.pem  its certificate
//   DIR/authority/issued.json      what it signed
//   DIR/authority/revoked.pem      the last list of what is revoked; there once something was
//   DIR/coordinator/               the identity of the first coordinator
#ifndef SHOAL_COMMON_TLS_POOL_AUTHORITY_H_
#define SHOAL_COMMON_TLS_POOL_AUTHORITY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/io/unique_fd.h"
#include "common/tls/authority.h"
#include "common/tls/certificate.h"
#include "common/tls/identity.h"

namespace shoal {

// Makes the authority of a new pool and its first coordinator, of that name. Whole or not at all.
//   ALREADY_EXISTS    `directory` is there and not empty
//   INVALID_ARGUMENT  CheckNodeName refuses a name
absl::Status InitPool(const std::string& directory, const std::string& pool,
                      const std::string& coordinator, absl::Time now);

struct IssuedCertificate {
  TlsRole role = TlsRole::kClient;
  std::string name;
  std::string serial;
  std::string fingerprint;
  absl::Time not_after;
  bool revoked = false;
};

// One thread at a time; one process at a time, by a lock on the directory.
class PoolAuthority {
 public:
  // `directory` is InitPool's. FAILED_PRECONDITION where another process has it open, or a file
  // cannot be used; names it.
  static absl::StatusOr<std::unique_ptr<PoolAuthority>> Open(const std::string& directory);

  const Authority& authority() const { return authority_; }
  const std::vector<IssuedCertificate>& issued() const { return issued_; }
  // Where it keeps its files.
  const std::string& path() const { return path_; }

  // Authority::Issue, written down before it is returned. ALREADY_EXISTS where a certificate of
  // that role and name is valid and not revoked: a name is one machine's.
  absl::StatusOr<std::string> Issue(absl::string_view request_pem, TlsRole role,
                                    const std::string& name, const Validity& validity,
                                    absl::Time now);
  // A new identity with a key made here, for who cannot make a request.
  absl::StatusOr<Identity> IssueIdentity(TlsRole role, const std::string& name,
                                         const Validity& validity, absl::Time now);
  // Puts every certificate of that name on the list, signs it anew and writes it beside the
  // authority and into the coordinator's identity; again where they were on it before. How many
  // there are.
  //   NOT_FOUND  there is none of that name; says which there are
  absl::StatusOr<int> Revoke(const std::string& name, absl::Time now);

 private:
  PoolAuthority(std::string directory, UniqueFd lock, Authority authority);
  absl::Status ReadIssued();
  absl::Status WriteIssued() const;
  absl::Status SignRevoked(absl::Time now);

  const std::string directory_;
  const std::string path_;
  const UniqueFd lock_;
  const Authority authority_;
  std::vector<IssuedCertificate> issued_;
  int64_t list_number_ = 0;
};

// How long certificates are valid where nobody says otherwise.
inline constexpr absl::Duration kAuthorityValidity = absl::Hours(24 * 3650);
inline constexpr absl::Duration kIdentityValidity = absl::Hours(24 * 730);

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_POOL_AUTHORITY_H_

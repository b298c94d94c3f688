// Invitations to a pool: secrets that are good once, for one name, until a time.
#ifndef SHOAL_COMMON_TLS_INVITES_H_
#define SHOAL_COMMON_TLS_INVITES_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/io/sha256.h"

namespace shoal {

// What a machine that was invited needs to know, and its text:
//   shoal-invite-1/HOST:PORT/FINGERPRINT/SECRET
struct InviteCode {
  std::string address;                // host:port of the listener
  std::string authority_fingerprint;  // SHA-256, 64 hexadecimal digits
  std::string secret;                 // kInviteSecretBytes bytes

  std::string ToString() const;
};
inline constexpr size_t kInviteSecretBytes = 16;
// INVALID_ARGUMENT says what such a code looks like.
absl::StatusOr<InviteCode> ParseInviteCode(absl::string_view text);

// The invitations of an authority, in a file of its directory: secrets only as digests.
// Thread-compatible; one process at a time, by the authority's lock.
class Invites {
 public:
  // A missing file has none. Errors name file and field.
  static absl::StatusOr<Invites> Open(std::string path);

  // A new secret for a machine of that name; written down before it is returned.
  absl::StatusOr<std::string> Add(const std::string& name, absl::Time expires);
  // The name that the secret was made for, which is used up from then on: written down before this
  // returns. UNAUTHENTICATED where no invitation that is open at `now` has it.
  absl::StatusOr<std::string> Use(absl::string_view secret, absl::Time now);
  // How many can still be used.
  int NumOpen(absl::Time now) const;
  // The names of those that were added since Open, expired, and nobody used, in the order of Add.
  std::vector<std::string> Expired(absl::Time now) const;
  // Has those that are open expire at `now`.
  absl::Status CloseAll(absl::Time now);

 private:
  struct Invite {
    std::string name;
    Sha256Digest sha256{};
    absl::Time expires;
    bool used = false;
  };
  explicit Invites(std::string path) : path_(std::move(path)) {}
  absl::Status Write() const;

  std::string path_;
  std::vector<Invite> invites_;
  size_t num_opened_ = 0;  // of them, how many were there at Open
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_INVITES_H_

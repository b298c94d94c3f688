// Which certificates of a pool are not valid any more: a list that only the authority can sign.
#ifndef SHOAL_COMMON_TLS_REVOCATION_H_
#define SHOAL_COMMON_TLS_REVOCATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

struct RevocationList {
  int64_t number = 0;                        // grows with every list; 0: there is none yet
  absl::flat_hash_set<std::string> serials;  // of certificates, lower-case hexadecimal
};

// What a node takes from a coordinator: some ten thousand certificates.
inline constexpr size_t kMaxRevocationBytes = size_t{1} << 20;

// INVALID_ARGUMENT where the text (PEM) cannot be read, has no number, or is not signed by the
// authority.
absl::StatusOr<RevocationList> ParseRevocations(absl::string_view pem,
                                                absl::string_view authority_pem);

// The list in a file that may be replaced at any time; a missing file is an empty list. Thread-safe.
class RevocationFile {
 public:
  // FAILED_PRECONDITION, with the path, where the file is there and ParseRevocations refuses it.
  // `clock` outlives the object.
  static absl::StatusOr<std::unique_ptr<RevocationFile>> Open(std::string path,
                                                              std::string authority_pem,
                                                              const Clock& clock);

  // By what is in the file, which is looked at again after half a second. A file that cannot be
  // read any more, or whose number is smaller, changes nothing.
  bool IsRevoked(absl::string_view serial);
  int64_t number();
  // The list in PEM; empty where there is none.
  std::string pem();
  // Replaces the file. OK, without a change, where the number is not larger.
  //   INVALID_ARGUMENT  as ParseRevocations
  //   and WriteFileAtomically's errors
  absl::Status Replace(absl::string_view pem);

 private:
  RevocationFile(std::string path, std::string authority_pem, const Clock& clock)
      : path_(std::move(path)), authority_pem_(std::move(authority_pem)), clock_(clock) {}
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LookAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::string authority_pem_;
  const Clock& clock_;
  Mutex mutex_;
  RevocationList list_ ABSL_GUARDED_BY(mutex_);
  std::string pem_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_REVOCATION_H_

// Keys that programs show to use a server: made here, shown once, and kept only as digests.
#ifndef SHOAL_COMMON_TLS_API_KEYS_H_
#define SHOAL_COMMON_TLS_API_KEYS_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/io/sha256.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

struct ApiKey {
  std::string name;
  Sha256Digest sha256{};  // of the whole key, its prefix included
  absl::Time created;
};

// What is in a file of keys, in its order; nothing where there is no file. Errors name file and
// field. FAILED_PRECONDITION where others than its owner may read it.
absl::StatusOr<std::vector<ApiKey>> ReadApiKeys(const std::string& path);

// Makes a key of 256 random bits, "shoal_" and 43 letters, digits, '-' and '_', and adds its digest
// to the file, which is made where there is none. The key is nowhere else.
//   ALREADY_EXISTS    a key has that name
//   INVALID_ARGUMENT  CheckNodeName refuses the name
//   and ReadApiKeys' errors
absl::StatusOr<std::string> AddApiKey(const std::string& path, const std::string& name,
                                      absl::Time now);
// NOT_FOUND says which names there are.
absl::Status RemoveApiKey(const std::string& path, const std::string& name);

// The keys in a file that may be changed at any time. Thread-safe.
class ApiKeyFile {
 public:
  // ReadApiKeys' errors; NOT_FOUND where there is no file. `clock` outlives the object.
  static absl::StatusOr<std::unique_ptr<ApiKeyFile>> Open(std::string path, const Clock& clock);

  // The name of the key with this text; nothing where there is none. Takes as long for any text of
  // that length. The file is looked at again after half a second; one that cannot be read any more
  // holds no key.
  std::optional<std::string> NameOf(absl::string_view key);
  // Whether there is still a key of this name.
  bool Has(absl::string_view name);

 private:
  ApiKeyFile(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}
  void LookAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<ApiKey> keys_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TLS_API_KEYS_H_

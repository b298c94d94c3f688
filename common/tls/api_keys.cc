#include "common/tls/api_keys.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/slice_json.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "common/tls/identity.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

constexpr char kFormat[] = "shoal-api-keys";
constexpr int64_t kVersion = 1;
constexpr char kPrefix[] = "shoal_";
constexpr size_t kSecretBytes = 32;
constexpr absl::Duration kLookAgainAfter = absl::Milliseconds(500);

absl::Status Write(const std::string& path, const std::vector<ApiKey>& keys) {
  Json json = {{"format", kFormat}, {"version", kVersion}, {"keys", Json::array()}};
  for (const ApiKey& key : keys) {
    json["keys"].push_back({{"name", key.name},
                            {"sha256", ToHex(key.sha256)},
                            {"created", absl::ToUnixSeconds(key.created)}});
  }
  return WriteSecretFile(path, json.dump(2) + "\n");
}

std::vector<std::string> NamesOf(const std::vector<ApiKey>& keys) {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const ApiKey& key : keys) {
    names.push_back(key.name);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<ApiKey>> ReadApiKeys(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadSecretFile(path);
  if (absl::IsNotFound(text.status())) {
    return std::vector<ApiKey>();
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(*text, path));
  JsonFields fields(json, path);
  fields.CheckFormat(kFormat, kVersion);
  const Json& entries = fields.Array("keys");
  SHOAL_RETURN_IF_ERROR(fields.status());
  std::vector<ApiKey> keys;
  keys.reserve(entries.size());
  for (const Json& entry : entries) {
    JsonFields one(entry, absl::StrCat(path, ": keys"));
    ApiKey key;
    key.name = one.String("name");
    const std::optional<Sha256Digest> digest = DigestFromHex(one.Digest("sha256"));
    key.created =
        absl::FromUnixSeconds(one.Int("created", 0, std::numeric_limits<int64_t>::max() / 2));
    SHOAL_RETURN_IF_ERROR(one.status());
    key.sha256 = digest.value_or(Sha256Digest{});
    keys.push_back(std::move(key));
  }
  return keys;
}

absl::StatusOr<std::string> AddApiKey(const std::string& path, const std::string& name,
                                      absl::Time now) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(name, "the key's name"));
  SHOAL_ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ReadApiKeys(path));
  if (std::any_of(keys.begin(), keys.end(), [&](const ApiKey& key) { return key.name == name; })) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, " has a key named ", name, "; choose another name, or `shoal keys revoke` it first"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string secret, RandomBytes(kSecretBytes));
  const std::string text = absl::StrCat(kPrefix, absl::WebSafeBase64Escape(secret));
  keys.push_back({name, Sha256::Of(absl::string_view(text)), now});
  SHOAL_RETURN_IF_ERROR(Write(path, keys));
  return text;
}

absl::Status RemoveApiKey(const std::string& path, const std::string& name) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<ApiKey> keys, ReadApiKeys(path));
  const auto gone =
      std::remove_if(keys.begin(), keys.end(), [&](const ApiKey& key) { return key.name == name; });
  if (gone == keys.end()) {
    return absl::NotFoundError(absl::StrCat(
        path, " has no key named ", name,
        keys.empty() ? "; there is none in it"
                     : absl::StrCat("; those there are: ", absl::StrJoin(NamesOf(keys), ", "))));
  }
  keys.erase(gone, keys.end());
  return Write(path, keys);
}

absl::StatusOr<std::unique_ptr<ApiKeyFile>> ApiKeyFile::Open(std::string path, const Clock& clock) {
  SHOAL_RETURN_IF_ERROR(ReadSecretFile(path).status());
  std::unique_ptr<ApiKeyFile> file(new ApiKeyFile(std::move(path), clock));
  MutexLock lock(&file->mutex_);
  SHOAL_ASSIGN_OR_RETURN(file->keys_, ReadApiKeys(file->path_));
  file->looked_ = clock.Now();
  return file;
}

void ApiKeyFile::LookAgain() {
  const absl::Time now = clock_.Now();
  if (now - looked_ < kLookAgainAfter) {
    return;
  }
  looked_ = now;
  keys_ = ReadApiKeys(path_).value_or(std::vector<ApiKey>());
}

std::optional<std::string> ApiKeyFile::NameOf(absl::string_view key) {
  const Sha256Digest digest = Sha256::Of(key);
  MutexLock lock(&mutex_);
  LookAgain();
  const ApiKey* found = nullptr;
  for (const ApiKey& candidate : keys_) {
    if (CRYPTO_memcmp(candidate.sha256.data(), digest.data(), digest.size()) == 0) {
      found = &candidate;
    }
  }
  return found != nullptr ? std::optional<std::string>(found->name) : std::nullopt;
}

bool ApiKeyFile::Has(absl::string_view name) {
  MutexLock lock(&mutex_);
  LookAgain();
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const ApiKey& key) { return key.name == name; });
}

}  // namespace shoal

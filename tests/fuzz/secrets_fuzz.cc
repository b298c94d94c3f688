// Feeds invitations as people paste them, and the files of keys and invitations. The first byte says which
// the rest is.
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/tls/api_keys.h"
#include "common/tls/identity.h"
#include "common/tls/invites.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// A file with this content that nobody else may read.
const std::string& WriteSecret(absl::string_view content) {
  static const std::string* const path = [] {
    char name[] = "/tmp/secrets_fuzz_XXXXXX";
    Expect(::mkdtemp(name) != nullptr);
    return new std::string(absl::StrCat(name, "/file"));
  }();
  std::FILE* file = std::fopen(path->c_str(), "wb");
  Expect(file != nullptr && ::fchmod(::fileno(file), 0600) == 0);
  Expect(std::fwrite(content.data(), 1, content.size(), file) == content.size());
  Expect(std::fclose(file) == 0);
  return *path;
}

void CheckInvite(absl::string_view text) {
  const auto code = shoal::ParseInviteCode(text);
  if (!code.ok()) {
    return;
  }
  Expect(code->secret.size() == shoal::kInviteSecretBytes &&
         code->authority_fingerprint.size() == 64);
  const auto again = shoal::ParseInviteCode(code->ToString());
  Expect(again.ok() && again->secret == code->secret && again->address == code->address);
}

void CheckKeys(absl::string_view text) {
  const std::string& path = WriteSecret(text);
  const auto keys = shoal::ReadApiKeys(path);
  if (!keys.ok()) {
    return;
  }
  // What is read can be written and read again, with one more.
  const auto added = shoal::AddApiKey(path, "one-more", absl::FromUnixSeconds(1));
  if (added.ok()) {
    const auto more = shoal::ReadApiKeys(path);
    Expect(more.ok() && more->size() == keys->size() + 1);
  } else {
    Expect(absl::IsAlreadyExists(added.status()));
  }
}

void CheckInvites(absl::string_view text) {
  auto invites = shoal::Invites::Open(WriteSecret(text));
  if (!invites.ok()) {
    return;
  }
  const absl::Time now = absl::FromUnixSeconds(1'000'000);
  const int open = invites->NumOpen(now);
  const auto secret = invites->Add("attic", now + absl::Seconds(1));
  Expect(secret.ok() && invites->NumOpen(now) == open + 1);
  Expect(invites->Use(*secret, now).ok() && !invites->Use(*secret, now).ok());
  Expect(invites->NumOpen(now) == open);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  const absl::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 3 == 0) {
    CheckInvite(rest);
  } else if (data[0] % 3 == 1) {
    CheckKeys(rest);
  } else {
    CheckInvites(rest);
  }
  return 0;
}

#include "common/tls/invites.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/json_fields.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/tls/identity.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

constexpr char kFormat[] = "shoal-invites";
constexpr int64_t kVersion = 1;
constexpr absl::string_view kPrefix = "shoal-invite-1";

}  // namespace

std::string InviteCode::ToString() const {
  std::string text;
  absl::WebSafeBase64Escape(secret, &text);
  return absl::StrCat(kPrefix, "/", address, "/", authority_fingerprint, "/", text);
}

absl::StatusOr<InviteCode> ParseInviteCode(absl::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '/');
  InviteCode code;
  if (parts.size() != 4 || parts[0] != kPrefix || !ParseNetAddress(parts[1]).ok() ||
      !DigestFromHex(parts[2]).has_value() ||
      !absl::WebSafeBase64Unescape(parts[3], &code.secret) ||
      code.secret.size() != kInviteSecretBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("this is no invitation; one looks like ", kPrefix,
                     "/192.168.1.5:7072/64-DIGITS/SECRET and comes from `shoal cluster invite`"));
  }
  code.address = parts[1];
  code.authority_fingerprint = parts[2];
  return code;
}

absl::StatusOr<Invites> Invites::Open(std::string path) {
  Invites invites(std::move(path));
  const absl::StatusOr<std::string> text = ReadSecretFile(invites.path_);
  if (absl::IsNotFound(text.status())) {
    return invites;
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(*text, invites.path_));
  JsonFields fields(json, invites.path_);
  fields.CheckFormat(kFormat, kVersion);
  const Json& entries = fields.Array("invites");
  SHOAL_RETURN_IF_ERROR(fields.status());
  invites.invites_.reserve(entries.size());
  for (const Json& entry : entries) {
    JsonFields one(entry, absl::StrCat(invites.path_, ": invites"));
    Invite invite;
    invite.name = one.String("name");
    const std::optional<Sha256Digest> digest = DigestFromHex(one.Digest("sha256"));
    invite.expires =
        absl::FromUnixSeconds(one.Int("expires", 0, std::numeric_limits<int64_t>::max() / 2));
    invite.used = one.Bool("used", true);
    SHOAL_RETURN_IF_ERROR(one.status());
    invite.sha256 = digest.value_or(Sha256Digest{});
    invites.invites_.push_back(std::move(invite));
  }
  invites.num_opened_ = invites.invites_.size();
  return invites;
}

absl::Status Invites::Write() const {
  Json json = {{"format", kFormat}, {"version", kVersion}, {"invites", Json::array()}};
  for (const Invite& invite : invites_) {
    json["invites"].push_back({{"name", invite.name},
                               {"sha256", ToHex(invite.sha256)},
                               {"expires", absl::ToUnixSeconds(invite.expires)},
                               {"used", invite.used}});
  }
  return WriteSecretFile(path_, json.dump(2) + "\n");
}

absl::StatusOr<std::string> Invites::Add(const std::string& name, absl::Time expires) {
  SHOAL_ASSIGN_OR_RETURN(std::string secret, RandomBytes(kInviteSecretBytes));
  invites_.push_back({name, Sha256::Of(absl::string_view(secret)), expires, /*used=*/false});
  if (absl::Status written = Write(); !written.ok()) {
    invites_.pop_back();
    return written;
  }
  return secret;
}

absl::StatusOr<std::string> Invites::Use(absl::string_view secret, absl::Time now) {
  const Sha256Digest digest = Sha256::Of(secret);
  Invite* found = nullptr;
  for (Invite& invite : invites_) {
    if (CRYPTO_memcmp(invite.sha256.data(), digest.data(), digest.size()) == 0) {
      found = &invite;
    }
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError("no invitation has this secret");
  }
  if (found->used || found->expires <= now) {
    return absl::UnauthenticatedError(absl::StrCat("the invitation of ", found->name,
                                                   found->used ? " was used" : " has expired"));
  }
  found->used = true;
  if (absl::Status written = Write(); !written.ok()) {
    found->used = false;
    return written;
  }
  return found->name;
}

int Invites::NumOpen(absl::Time now) const {
  return static_cast<int>(
      std::count_if(invites_.begin(), invites_.end(),
                    [now](const Invite& invite) { return !invite.used && invite.expires > now; }));
}

std::vector<std::string> Invites::Expired(absl::Time now) const {
  std::vector<std::string> names;
  for (size_t i = num_opened_; i < invites_.size(); ++i) {
    if (!invites_[i].used && invites_[i].expires <= now) {
      names.push_back(invites_[i].name);
    }
  }
  return names;
}

absl::Status Invites::CloseAll(absl::Time now) {
  if (NumOpen(now) == 0) {
    return absl::OkStatus();
  }
  for (Invite& invite : invites_) {
    if (!invite.used) {
      invite.expires = std::min(invite.expires, now);
    }
  }
  return Write();
}

}  // namespace shoal

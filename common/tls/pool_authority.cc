#include "common/tls/pool_authority.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/container/slice_json.h"
#include "common/container/staging_directory.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr char kFormat[] = "shoal-issued-certificates";
constexpr int64_t kVersion = 1;
constexpr char kIssuedFile[] = "issued.json";
constexpr char kAuthorityFolder[] = "authority";
constexpr char kCoordinatorFolder[] = "coordinator";

std::string In(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

Json ToJson(const IssuedCertificate& certificate) {
  return {{"role", std::string(TlsRoleName(certificate.role))},
          {"name", certificate.name},
          {"serial", certificate.serial},
          {"fingerprint", certificate.fingerprint},
          {"not_after", absl::ToUnixSeconds(certificate.not_after)},
          {"revoked", certificate.revoked}};
}

absl::StatusOr<IssuedCertificate> IssuedFromJson(const Json& json, const std::string& source) {
  JsonFields fields(json, source);
  IssuedCertificate certificate;
  const std::string role = fields.String("role");
  certificate.name = fields.String("name");
  certificate.serial = fields.String("serial");
  certificate.fingerprint = fields.Digest("fingerprint");
  certificate.not_after =
      absl::FromUnixSeconds(fields.Int("not_after", 0, std::numeric_limits<int64_t>::max() / 2));
  certificate.revoked = fields.Bool("revoked", false);
  if (const std::optional<TlsRole> parsed = ParseTlsRole(role)) {
    certificate.role = *parsed;
  } else {
    fields.Fail("role", "is not coordinator, node or client");
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  return certificate;
}

// The directory's files, in a place that is not the final one yet.
absl::Status FillDirectory(const std::string& directory, const std::string& pool,
                           const std::string& coordinator, absl::Time now) {
  SHOAL_ASSIGN_OR_RETURN(const Authority authority,
                         Authority::Make(pool, ValidFor(now, kAuthorityValidity)));
  SHOAL_ASSIGN_OR_RETURN(const std::string key, authority.KeyPem());
  const std::string folder = In(directory, kAuthorityFolder);
  SHOAL_RETURN_IF_ERROR(MakeSecretDirectory(folder));
  SHOAL_RETURN_IF_ERROR(WriteSecretFile(In(folder, kKeyFile), key));
  SHOAL_RETURN_IF_ERROR(WriteSecretFile(In(folder, kCertificateFile), authority.certificate_pem()));
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<PoolAuthority> opened,
                         PoolAuthority::Open(directory));
  SHOAL_ASSIGN_OR_RETURN(const Identity identity,
                         opened->IssueIdentity(TlsRole::kCoordinator, coordinator,
                                               ValidFor(now, kIdentityValidity), now));
  return StoreIdentity(In(directory, kCoordinatorFolder), identity);
}

}  // namespace

absl::Status InitPool(const std::string& directory, const std::string& pool,
                      const std::string& coordinator, absl::Time now) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(pool, "the pool's name"));
  SHOAL_RETURN_IF_ERROR(CheckNodeName(coordinator, "the coordinator's name"));
  const std::string target = WithoutTrailingSlashes(directory);
  // Also says so where the directory is in use.
  SHOAL_RETURN_IF_ERROR(MakeSecretDirectory(target));
  return StoreSecretDirectory(target, [&](const std::string& staging) {
    return FillDirectory(staging, pool, coordinator, now);
  });
}

PoolAuthority::PoolAuthority(std::string directory, UniqueFd lock, Authority authority)
    : directory_(std::move(directory)),
      path_(In(directory_, kAuthorityFolder)),
      lock_(std::move(lock)),
      authority_(std::move(authority)) {}

absl::StatusOr<std::unique_ptr<PoolAuthority>> PoolAuthority::Open(const std::string& directory) {
  std::string root = WithoutTrailingSlashes(directory);
  const std::string path = In(root, kAuthorityFolder);
  UniqueFd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) {
    return Annotate(ErrnoToStatus(errno, absl::StrCat("open ", path)),
                    absl::StrCat(root, " is no directory that `shoal cluster init` made"));
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is in use by another process (`shoal cluster invite`?); wait for it"));
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string key, ReadSecretFile(In(path, kKeyFile)));
  SHOAL_ASSIGN_OR_RETURN(const std::string pem, ReadSecretFile(In(path, kCertificateFile)));
  absl::StatusOr<Authority> authority = Authority::FromPem(key, pem);
  SHOAL_RETURN_IF_ERROR(Annotate(authority.status(), path));
  std::unique_ptr<PoolAuthority> opened(
      new PoolAuthority(std::move(root), std::move(lock), *std::move(authority)));
  SHOAL_RETURN_IF_ERROR(opened->ReadIssued());
  return opened;
}

absl::Status PoolAuthority::ReadIssued() {
  const std::string path = In(path_, kIssuedFile);
  const absl::StatusOr<std::string> text = ReadSecretFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::OkStatus();
  }
  SHOAL_RETURN_IF_ERROR(text.status());
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(*text, path));
  JsonFields fields(json, path);
  fields.CheckFormat(kFormat, kVersion);
  list_number_ = fields.Int("list_number", 0, std::numeric_limits<int64_t>::max() - 1);
  const Json& certificates = fields.Array("certificates");
  SHOAL_RETURN_IF_ERROR(fields.status());
  issued_.reserve(certificates.size());
  for (const Json& entry : certificates) {
    SHOAL_ASSIGN_OR_RETURN(IssuedCertificate certificate, IssuedFromJson(entry, path));
    issued_.push_back(std::move(certificate));
  }
  return absl::OkStatus();
}

absl::Status PoolAuthority::WriteIssued() const {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"list_number", list_number_},
               {"certificates", Json::array()}};
  for (const IssuedCertificate& certificate : issued_) {
    json["certificates"].push_back(ToJson(certificate));
  }
  return WriteSecretFile(In(path_, kIssuedFile), json.dump(2) + "\n");
}

absl::StatusOr<std::string> PoolAuthority::Issue(absl::string_view request_pem, TlsRole role,
                                                 const std::string& name, const Validity& validity,
                                                 absl::Time now) {
  for (const IssuedCertificate& other : issued_) {
    if (other.role == role && other.name == name && !other.revoked && other.not_after > now) {
      return absl::AlreadyExistsError(absl::StrCat(
          TlsRoleName(role), " ", name, " has a certificate already; if it is lost or has to be ",
          "replaced, `shoal cluster revoke` it first, or choose another name"));
    }
  }
  SHOAL_ASSIGN_OR_RETURN(std::string pem, authority_.Issue(request_pem, role, name, validity));
  SHOAL_ASSIGN_OR_RETURN(const Certificate certificate, ParseCertificate(pem));
  issued_.push_back({role, name, certificate.serial, certificate.fingerprint, certificate.not_after,
                     /*revoked=*/false});
  if (absl::Status written = WriteIssued(); !written.ok()) {
    issued_.pop_back();
    return written;
  }
  return pem;
}

absl::StatusOr<Identity> PoolAuthority::IssueIdentity(TlsRole role, const std::string& name,
                                                      const Validity& validity, absl::Time now) {
  SHOAL_ASSIGN_OR_RETURN(std::string key, MakeKeyPem());
  SHOAL_ASSIGN_OR_RETURN(const std::string request, MakeRequestPem(key));
  SHOAL_ASSIGN_OR_RETURN(std::string certificate, Issue(request, role, name, validity, now));
  return MakeIdentity(std::move(key), std::move(certificate), authority_.certificate_pem(), now);
}

absl::StatusOr<int> PoolAuthority::Revoke(const std::string& name, absl::Time now) {
  int count = 0;
  std::vector<std::string> others;
  for (IssuedCertificate& certificate : issued_) {
    if (certificate.name == name) {
      certificate.revoked = true;
      ++count;
    } else if (!certificate.revoked) {
      others.push_back(certificate.name);
    }
  }
  if (count == 0) {
    return absl::NotFoundError(absl::StrCat("no certificate was ever made for ", name,
                                            "; there are some for: ", absl::StrJoin(others, ", ")));
  }
  ++list_number_;
  // Killed in between, the same command does what is left.
  SHOAL_RETURN_IF_ERROR(WriteIssued());
  SHOAL_RETURN_IF_ERROR(SignRevoked(now));
  return count;
}

absl::Status PoolAuthority::SignRevoked(absl::Time now) {
  std::vector<std::string> serials;
  for (const IssuedCertificate& certificate : issued_) {
    // One that has expired is refused without a list.
    if (certificate.revoked && certificate.not_after > now) {
      serials.push_back(certificate.serial);
    }
  }
  SHOAL_ASSIGN_OR_RETURN(const std::string pem,
                         authority_.SignRevocations(list_number_, serials, now));
  SHOAL_RETURN_IF_ERROR(WriteSecretFile(In(path_, kRevokedFile), pem));
  const std::string coordinator = In(directory_, kCoordinatorFolder);
  std::error_code error;
  return fs::is_directory(coordinator, error) ? WriteSecretFile(In(coordinator, kRevokedFile), pem)
                                              : absl::OkStatus();
}

}  // namespace shoal

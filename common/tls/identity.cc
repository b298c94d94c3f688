#include "common/tls/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include <openssl/x509.h>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/container/staging_directory.h"
#include "common/io/file.h"
#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/tls/openssl_handles.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxPemBytes = uint64_t{64} << 10;
constexpr uint64_t kMaxSecretBytes = uint64_t{4} << 20;
constexpr mode_t kOwnerOnly = S_IRUSR | S_IWUSR;

absl::Status WriteOwnersFile(const std::string& path, absl::string_view content) {
  const UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly));
  // Before there is anything in it, should the file have been there with other rights.
  if (!fd.valid() || ::fchmod(fd.get(), kOwnerOnly) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("write ", path));
  }
  SHOAL_RETURN_IF_ERROR(
      WriteAll(fd, path, std::as_bytes(std::span(content.data(), content.size()))));
  return SyncFile(fd, path);
}

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool IsInUse(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error)) &&
         !(fs::is_directory(path, error) && fs::is_empty(path, error));
}

absl::Status InUse(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is there already and is not overwritten; name another directory"));
}

absl::StatusOr<std::string> ReadPublicFile(const std::string& path) {
  return ReadTextFile(path, kMaxPemBytes);
}

}  // namespace

absl::StatusOr<Identity> MakeIdentity(std::string key_pem, std::string certificate_pem,
                                      std::string authority_pem, absl::Time now) {
  SHOAL_ASSIGN_OR_RETURN(const KeyHandle key, KeyFromPem(key_pem));
  SHOAL_ASSIGN_OR_RETURN(const CertificateHandle x509, CertificateFromPem(certificate_pem));
  if (X509_check_private_key(x509.get(), key.get()) != 1) {
    (void)OpensslError("");
    return absl::InvalidArgumentError("the private key is not that of the certificate");
  }
  // Every certificate of ours may be a client's.
  SHOAL_ASSIGN_OR_RETURN(Certificate certificate,
                         VerifyCertificate(certificate_pem, authority_pem, TlsSide::kClient, now));
  return Identity{std::move(key_pem), std::move(certificate_pem), std::move(authority_pem),
                  std::move(certificate)};
}

absl::StatusOr<Identity> LoadIdentity(const std::string& directory, absl::Time now) {
  const std::string key_path = absl::StrCat(directory, "/", kKeyFile);
  absl::StatusOr<std::string> found = ReadSecretFile(key_path);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(absl::StrCat(
        "there is no identity: ", key_path, " does not exist. A coordinator's is made by `shoal ",
        "cluster init`, a node's by `shoal-node --join`, any by `shoal cluster issue`"));
  }
  SHOAL_ASSIGN_OR_RETURN(std::string key, std::move(found));
  SHOAL_ASSIGN_OR_RETURN(std::string certificate,
                         ReadPublicFile(absl::StrCat(directory, "/", kCertificateFile)));
  SHOAL_ASSIGN_OR_RETURN(std::string authority,
                         ReadPublicFile(absl::StrCat(directory, "/", kAuthorityFile)));
  absl::StatusOr<Identity> identity =
      MakeIdentity(std::move(key), std::move(certificate), std::move(authority), now);
  if (!identity.ok()) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is no identity that can be used: ", std::string(identity.status().message()),
        "; get a new one (`shoal cluster invite`, or `shoal cluster issue`)"));
  }
  return identity;
}

absl::Status MakeSecretDirectory(const std::string& path) {
  if (IsInUse(path)) {
    return InUse(path);
  }
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, absl::StrCat("create directory ", path));
  }
  if (::chmod(path.c_str(), S_IRWXU) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("protect directory ", path));
  }
  return SyncDirectory(ParentOf(path));
}

absl::Status CheckIdentityPlace(const std::string& directory) {
  const std::string target = WithoutTrailingSlashes(directory);
  return IsInUse(target) ? InUse(target) : absl::OkStatus();
}

absl::Status StoreIdentity(const std::string& directory, const Identity& identity) {
  const std::string target = WithoutTrailingSlashes(directory);
  SHOAL_RETURN_IF_ERROR(CheckIdentityPlace(target));
  return StoreSecretDirectory(target, [&identity](const std::string& staging) {
    SHOAL_RETURN_IF_ERROR(WriteOwnersFile(absl::StrCat(staging, "/", kKeyFile), identity.key_pem));
    SHOAL_RETURN_IF_ERROR(
        WriteOwnersFile(absl::StrCat(staging, "/", kCertificateFile), identity.certificate_pem));
    return WriteOwnersFile(absl::StrCat(staging, "/", kAuthorityFile), identity.authority_pem);
  });
}

absl::Status StoreSecretDirectory(
    const std::string& target, absl::FunctionRef<absl::Status(const std::string& staging)> fill) {
  std::string staging = absl::StrCat(target, ".XXXXXX");
  if (::mkdtemp(staging.data()) == nullptr) {  // 0700
    return ErrnoToStatus(errno, absl::StrCat("create a directory beside ", target));
  }
  absl::Status status = fill(staging);
  status.Update(status.ok() ? SyncDirectory(staging) : status);
  status.Update(status.ok() ? RenameDurably(staging, target) : status);
  if (!status.ok()) {
    std::error_code error;
    fs::remove_all(staging, error);
  }
  return status;
}

absl::StatusOr<std::string> ReadSecretFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("read ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  }
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " can be read or written by others than its owner; run: chmod 600 ", path));
  }
  return ReadTextFile(path, kMaxSecretBytes);
}

absl::Status WriteSecretFile(const std::string& path, absl::string_view content) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  absl::Status status = WriteOwnersFile(temporary, content);
  status.Update(status.ok() ? RenameDurably(temporary, path) : status);
  if (!status.ok()) {
    (void)::unlink(temporary.c_str());
  }
  return status;
}

}  // namespace shoal

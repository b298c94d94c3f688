#include "common/container/staging_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/staged_file.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

bool SameFile(const UniqueFd& fd, const std::string& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(fd.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace

std::string WithoutTrailingSlashes(const std::string& path) {
  return path.substr(0, path.find_last_not_of('/') + 1);
}

absl::Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    return errno == EEXIST ? absl::OkStatus()
                           : ErrnoToStatus(errno, absl::StrCat("create directory ", path));
  }
  return SyncDirectory(ParentOf(path));
}

absl::StatusOr<UniqueFd> MakeLockedDirectory(const std::string& path) {
  // Another process may remove the directory between our creating and our locking it.
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(path));
    UniqueFd lock(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!lock.valid()) {
      if (errno == ENOENT) {
        continue;
      }
      return ErrnoToStatus(errno, absl::StrCat("open ", path));
    }
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
      return errno == EWOULDBLOCK
                 ? absl::FailedPreconditionError(absl::StrCat(
                       path, " is locked: another process is at work in it; wait for it"))
                 : ErrnoToStatus(errno, absl::StrCat("lock ", path));
    }
    if (SameFile(lock, path)) {
      return lock;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " keeps being removed by another process; run again"));
}

absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return ErrnoToStatus(error.value(), absl::StrCat("list ", path));
  }
  return names;
}

StagingDirectory::StagingDirectory(std::string target, const StagingNames& names, UniqueFd lock)
    : target_(std::move(target)),
      names_(names),
      path_(absl::StrCat(target_, ".partial")),
      lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<StagingDirectory>> StagingDirectory::Acquire(
    const std::string& target, const StagingNames& names) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd lock, MakeLockedDirectory(absl::StrCat(target, ".partial")));
  auto staging =
      std::unique_ptr<StagingDirectory>(new StagingDirectory(target, names, std::move(lock)));
  SHOAL_RETURN_IF_ERROR(staging->CheckContent());
  return staging;
}

StagingDirectory::~StagingDirectory() {
  // Each removes an empty directory only; what is kept for a later run stays.
  for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
    (void)::rmdir(folder->c_str());
  }
  (void)::rmdir(path_.c_str());
}

std::string StagingDirectory::ledger_path() const {
  return absl::StrCat(path_, "/", names_.ledger);
}

std::string StagingDirectory::content_path() const {
  return absl::StrCat(path_, "/", names_.content);
}

absl::Status StagingDirectory::CheckContent() const {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(path_));
  bool has_ledger = false;
  std::string stranger;
  for (const std::string& name : names) {
    if (name == names_.ledger) {
      has_ledger = true;
    } else if (name != absl::StrCat(names_.ledger, kStagedSuffix)) {
      stranger = name;
    }
  }
  if (!has_ledger && !stranger.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(path_, " holds ", stranger, " and no ",
                                                      names_.ledger, ", so it is not ", names_.work,
                                                      " to go on with; remove or rename it"));
  }
  return absl::OkStatus();
}

absl::Status StagingDirectory::PrepareContent(const std::vector<std::string>& folders) {
  folders_ = {content_path()};
  for (const std::string& folder : folders) {
    folders_.push_back(absl::StrCat(content_path(), "/", folder));
  }
  for (const std::string& folder : folders_) {
    SHOAL_RETURN_IF_ERROR(MakeDirectory(folder));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(folder));
    for (const std::string& name : names) {
      if (name.ends_with(kStagedSuffix)) {
        std::error_code error;
        fs::remove(absl::StrCat(folder, "/", name), error);
        if (error) {
          return ErrnoToStatus(error.value(), absl::StrCat("remove ", folder, "/", name));
        }
      }
    }
  }
  return absl::OkStatus();
}

absl::Status StagingDirectory::Publish() {
  SHOAL_RETURN_IF_ERROR(RenameDurably(content_path(), target_));
  return RemoveLedger();
}

absl::Status StagingDirectory::RemoveLedger() {
  for (const std::string& path : {ledger_path(), absl::StrCat(ledger_path(), kStagedSuffix)}) {
    std::error_code error;
    fs::remove(path, error);
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("remove ", path));
    }
  }
  return absl::OkStatus();
}

void StagingDirectory::RemoveLeftOver(const std::string& target, const StagingNames& names) {
  std::error_code ignored;
  const std::string path = absl::StrCat(target, ".partial");
  if (!fs::is_directory(path, ignored) ||
      fs::exists(absl::StrCat(path, "/", names.content), ignored)) {
    return;
  }
  if (const auto staging = Acquire(target, names); staging.ok()) {
    // What cannot be removed is tried again by the next run.
    (*staging)->RemoveLedger().IgnoreError();
  }
}

}  // namespace shoal

#include "common/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

absl::StatusOr<UniqueFd> OpenForRead(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("open ", path, ": not a regular file"));
  }
  return fd;
}

absl::StatusOr<uint64_t> FileBytes(const UniqueFd& fd, absl::string_view path) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path));
  }
  return static_cast<uint64_t>(info.st_size);
}

absl::Status ReadExactAt(const UniqueFd& fd, absl::string_view path, uint64_t offset_bytes,
                         std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n = ::pread(fd.get(), out.data() + done, out.size() - done,
                              static_cast<off_t>(offset_bytes + done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return ErrnoToStatus(errno, absl::StrCat("read ", path, " at ", offset_bytes + done));
    }
    if (n == 0) {
      return absl::DataLossError(absl::StrCat("read ", path, ": the file ends at byte ",
                                              offset_bytes + done, ", ", out.size() - done,
                                              " bytes too early"));
    }
    done += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

void DropPageCache(const UniqueFd& fd, uint64_t offset_bytes, uint64_t length_bytes) {
  // Advice only: a file system that ignores it costs page cache, not correctness.
  (void)::posix_fadvise(fd.get(), static_cast<off_t>(offset_bytes),
                        static_cast<off_t>(length_bytes), POSIX_FADV_DONTNEED);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, uint64_t max_bytes) {
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, OpenForRead(path));
  SHOAL_ASSIGN_OR_RETURN(uint64_t size, FileBytes(fd, path));
  if (size > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("read ", path, ": ", size, " bytes, at most ", max_bytes, " are accepted"));
  }
  std::string text(size, '\0');
  SHOAL_RETURN_IF_ERROR(
      ReadExactAt(fd, path, 0, std::as_writable_bytes(std::span<char>(text.data(), text.size()))));
  return text;
}

absl::Status WriteAll(const UniqueFd& fd, absl::string_view path,
                      std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return ErrnoToStatus(errno, absl::StrCat("write ", path));
    }
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> CreateForWrite(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("create ", path));
  }
  return fd;
}

namespace {

absl::Status WriteAndSync(UniqueFd fd, const std::string& path, absl::string_view content) {
  SHOAL_RETURN_IF_ERROR(
      WriteAll(fd, path, std::as_bytes(std::span(content.data(), content.size()))));
  SHOAL_RETURN_IF_ERROR(SyncFile(fd, path));
  return Annotate(fd.Close(), path);
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path, absl::string_view content) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  SHOAL_ASSIGN_OR_RETURN(UniqueFd fd, CreateForWrite(temporary));
  absl::Status status = WriteAndSync(std::move(fd), temporary, content);
  if (status.ok()) {
    status = RenameDurably(temporary, path);
  }
  if (!status.ok()) {
    (void)::unlink(temporary.c_str());  // gone already where only the directory's sync failed
  }
  return status;
}

absl::Status SyncDirectory(const std::string& directory) {
  UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, absl::StrCat("open directory ", directory));
  }
  if (::fsync(fd.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("sync directory ", directory));
  }
  return absl::OkStatus();
}

absl::Status SyncFile(const UniqueFd& fd, absl::string_view path) {
  if (::fsync(fd.get()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("sync ", path));
  }
  return absl::OkStatus();
}

absl::Status RenameDurably(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename ", from, " to ", to));
  }
  const std::string parent = std::filesystem::path(to).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

absl::StatusOr<uint64_t> FreeDiskBytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("free space of ", path));
  }
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace shoal

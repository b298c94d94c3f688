#include "common/io/unique_fd.h"

#include <unistd.h>

#include <cerrno>

#include "common/status/status_util.h"

namespace shoal {

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) {
      ::close(fd_);
    }
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

absl::Status UniqueFd::Close() {
  const int fd = std::exchange(fd_, -1);
  if (fd >= 0 && ::close(fd) != 0) {
    return ErrnoToStatus(errno, "close");
  }
  return absl::OkStatus();
}

}  // namespace shoal

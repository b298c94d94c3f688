// Owner of a file descriptor.
#ifndef SHOAL_COMMON_IO_UNIQUE_FD_H_
#define SHOAL_COMMON_IO_UNIQUE_FD_H_

#include <utility>

#include "absl/status/status.h"

namespace shoal {

// Move-only. The destructor closes and ignores errors: use Close() where a failed close loses data.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  ~UniqueFd();
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

  // Closes now. After it, also on error, nothing is owned.
  absl::Status Close();

 private:
  int fd_ = -1;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_UNIQUE_FD_H_

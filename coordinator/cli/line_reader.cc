#include "coordinator/cli/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <utility>

#include "common/io/unique_fd.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr size_t kMaxLineBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::optional<std::string>> LineReader::Next(const std::stop_token& stop) {
  size_t newline = buffer_.find('\n');
  while (newline == std::string::npos) {
    if (buffer_.size() > kMaxLineBytes) {
      return absl::ResourceExhaustedError("a line of the input is longer than 1 MiB");
    }
    SHOAL_ASSIGN_OR_RETURN(const bool more, Fill(stop));
    if (!more) {
      if (buffer_.empty()) {
        return std::nullopt;
      }
      return std::exchange(buffer_, std::string());
    }
    newline = buffer_.find('\n');
  }
  std::string line = buffer_.substr(0, newline);
  buffer_.erase(0, newline + 1);
  return line;
}

absl::StatusOr<bool> LineReader::Fill(const std::stop_token& stop) {
  const UniqueFd wake(::eventfd(0, EFD_CLOEXEC));
  if (wake.get() < 0) {
    return ErrnoToStatus(errno, "create an event descriptor");
  }
  const std::stop_callback on_stop(stop, [&wake] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof(one));
  });
  std::array<pollfd, 2> waits = {{{fd_, POLLIN, 0}, {wake.get(), POLLIN, 0}}};
  while (::poll(waits.data(), waits.size(), -1) < 0) {
    if (errno != EINTR) {
      return ErrnoToStatus(errno, "wait for input");
    }
  }
  if (stop.stop_requested()) {
    return absl::CancelledError("interrupted while waiting for input");
  }
  std::array<char, 4096> chunk;
  const ssize_t count = ::read(fd_, chunk.data(), chunk.size());
  if (count < 0 && errno != EINTR && errno != EAGAIN) {
    return ErrnoToStatus(errno, "read the input");
  }
  buffer_.append(chunk.data(), count < 0 ? 0 : static_cast<size_t>(count));
  return count != 0;
}

}  // namespace shoal

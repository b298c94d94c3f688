#include "common/sync/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "common/io/unique_fd.h"

namespace shoal {

void TellServiceManager(absl::string_view assignments) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr) {
    return;
  }
  const absl::string_view where(path);
  sockaddr_un name{};
  if (where.empty() || where.size() >= sizeof(name.sun_path) ||
      (where[0] != '/' && where[0] != '@')) {
    return;
  }
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, where.data(), where.size());
  if (where[0] == '@') {
    name.sun_path[0] = '\0';  // a name of Linux that is in no file system
  }
  const UniqueFd fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd.valid()) {
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + where.size());
    (void)!::sendto(fd.get(), assignments.data(), assignments.size(), MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&name), size);
  }
}

}  // namespace shoal

#include "expert_node/service/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr int kBacklog = 128;

// Fills `name`; returns its size.
socklen_t ToSocketAddress(const NetAddress& address, sockaddr_storage& name) {
  if (address.host.find(':') != std::string::npos) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(name);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    ::inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr);
    return sizeof(v6);
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(name);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(address.port);
  ::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr);
  return sizeof(v4);
}

uint16_t PortOf(const sockaddr_storage& name) {
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(name).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(name).sin_port);
}

}  // namespace

absl::StatusOr<NetAddress> ParseListenAddress(absl::string_view text) {
  absl::StatusOr<NetAddress> address = ParseNetAddress(text);
  if (address.ok() && address->host == "localhost") {
    address->host = "127.0.0.1";
  }
  if (!address.ok() || !IsNumeric(*address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not an address to listen on; write IP:PORT, for example ",
                     "127.0.0.1:7071, [::1]:7071 or localhost:7071; port 0 takes a free one"));
  }
  return address;
}

absl::StatusOr<UniqueFd> ListenOn(NetAddress& address) {
  sockaddr_storage name{};
  socklen_t size = ToSocketAddress(address, name);
  const std::string what = absl::StrCat("listen on ", address.ToString());
  UniqueFd fd(::socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return ErrnoToStatus(errno, what);
  }
  // A port in TIME_WAIT is free; one that another process listens on is not.
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  auto* const generic = reinterpret_cast<sockaddr*>(&name);
  if (::bind(fd.get(), generic, size) == 0 && ::listen(fd.get(), kBacklog) == 0) {
    ::getsockname(fd.get(), generic, &size);
    address.port = PortOf(name);
    return fd;
  }
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(
        what, ": the port is in use by another process; end it, or choose another port"));
  }
  return ErrnoToStatus(errno, what);
}

absl::Status CheckCanListen(const NetAddress& address) {
  NetAddress tried = address;
  return ListenOn(tried).status();
}

}  // namespace shoal

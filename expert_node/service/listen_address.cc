#include "expert_node/service/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/unique_fd.h"
#include "common/status/status_util.h"

namespace shoal {

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

absl::Status CheckCanListen(const NetAddress& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const bool is_v6 = address.host.find(':') != std::string::npos;
  if (is_v6) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(address.port);
    ::inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr);
  } else {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(address.port);
    ::inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr);
  }
  const auto* name =
      is_v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  const UniqueFd fd(::socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string what = absl::StrCat("listen on ", address.ToString());
  if (!fd.valid()) {
    return ErrnoToStatus(errno, what);
  }
  // As the server will: a port in TIME_WAIT is free.
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (::bind(fd.get(), name, is_v6 ? sizeof(v6) : sizeof(v4)) == 0 && ::listen(fd.get(), 1) == 0) {
    return absl::OkStatus();
  }
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError(absl::StrCat(
        what, ": the port is in use by another process; end it, or choose another port"));
  }
  return ErrnoToStatus(errno, what);
}

}  // namespace shoal

#include "expert_node/service/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/io/unique_fd.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr int kMostPort = 65535;

// The host without brackets, for the system's functions.
std::string Bare(const std::string& host) {
  return host.front() == '[' ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

std::string ListenAddress::ToString() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  const absl::Status refused = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not an address to listen on; write IP:PORT, for example ",
                   "127.0.0.1:7071, [::1]:7071 or localhost:7071; port 0 takes a free one"));
  const size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > kMostPort) {
    return refused;
  }
  const absl::string_view host = text.substr(0, colon);
  address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
  in_addr v4{};
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) {
    constexpr uint32_t kLoopbackNet = 127;
    address.loopback = ntohl(v4.s_addr) >> 24 == kLoopbackNet;
    return address;
  }
  in6_addr v6{};
  if (!absl::StartsWith(host, "[") || !absl::EndsWith(host, "]") ||
      ::inet_pton(AF_INET6, Bare(address.host).c_str(), &v6) != 1) {
    return refused;
  }
  address.loopback = IN6_IS_ADDR_LOOPBACK(&v6);
  return address;
}

absl::Status CheckCanListen(const ListenAddress& address) {
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  const bool is_v6 = address.host.front() == '[';
  if (is_v6) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<uint16_t>(address.port));
    ::inet_pton(AF_INET6, Bare(address.host).c_str(), &v6.sin6_addr);
  } else {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<uint16_t>(address.port));
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

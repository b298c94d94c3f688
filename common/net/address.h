// Addresses of machines as people write them: HOST:PORT.
#ifndef SHOAL_COMMON_NET_ADDRESS_H_
#define SHOAL_COMMON_NET_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

struct NetAddress {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without its brackets
  uint16_t port = 0;
  // "host:port", with brackets around an IPv6 address.
  std::string ToString() const;
};

// INVALID_ARGUMENT quotes the text and says what is expected. A host is at most 253 letters,
// digits, dots, dashes and underscores; an IPv6 address has brackets around it, and maybe a %zone.
// Port 0 is accepted: to listen on any free one.
absl::StatusOr<NetAddress> ParseNetAddress(absl::string_view text);

// Whether the host is written in numbers, IPv4 or IPv6 without a zone.
bool IsNumeric(const NetAddress& address);

// Whether the host is this machine alone: localhost, 127.0.0.0/8 or ::1. A name that only resolves
// to one of them does not count.
bool IsLoopback(const NetAddress& address);

}  // namespace shoal

#endif  // SHOAL_COMMON_NET_ADDRESS_H_

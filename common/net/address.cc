#include "common/net/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace shoal {
namespace {

absl::Status Malformed(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is not an address; write HOST:PORT, like 192.168.1.7:7101 or [::1]:7101"));
}

}  // namespace

std::string NetAddress::ToString() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return is_ipv6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<NetAddress> ParseNetAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) {
    return Malformed(text);
  }
  absl::string_view host = text.substr(0, colon);
  const bool bracketed = absl::ConsumePrefix(&host, "[") && absl::ConsumeSuffix(&host, "]");
  const bool has_colon = host.find(':') != absl::string_view::npos;
  constexpr size_t kMaxHostLength = 253;
  const bool plain = std::all_of(host.begin(), host.end(), [bracketed](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_' ||
           (bracketed && (c == ':' || c == '%'));
  });
  if (host.empty() || host.size() > kMaxHostLength || bracketed != has_colon || !plain) {
    return Malformed(text);
  }
  uint32_t port = 0;
  const absl::string_view digits = text.substr(colon + 1);
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port > UINT16_MAX) {
    return Malformed(text);
  }
  return NetAddress{std::string(host), static_cast<uint16_t>(port)};
}

bool IsNumeric(const NetAddress& address) {
  in_addr ipv4{};
  in6_addr ipv6{};
  return inet_pton(AF_INET, address.host.c_str(), &ipv4) == 1 ||
         inet_pton(AF_INET6, address.host.c_str(), &ipv6) == 1;
}

bool IsLoopback(const NetAddress& address) {
  constexpr uint32_t kLoopbackNet = 127;
  in_addr ipv4{};
  if (inet_pton(AF_INET, address.host.c_str(), &ipv4) == 1) {
    return ntohl(ipv4.s_addr) >> 24 == kLoopbackNet;
  }
  in6_addr ipv6{};
  if (inet_pton(AF_INET6, address.host.c_str(), &ipv6) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&ipv6);
  }
  return address.host == "localhost";
}

}  // namespace shoal

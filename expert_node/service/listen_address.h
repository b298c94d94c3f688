// Where a server listens, as people write it.
#ifndef SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_
#define SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

struct ListenAddress {
  std::string host;  // numeric, IPv6 in brackets
  int port = 0;      // 0: any free one
  bool loopback = false;

  std::string ToString() const;  // HOST:PORT
};

// "127.0.0.1:7071", "[::1]:7071", "localhost:0", "0.0.0.0:7071". INVALID_ARGUMENT says what to
// write.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

// Whether the system would let this process listen there now.
//   ALREADY_EXISTS   another process listens on the port
//   and ErrnoToStatus's codes; all name the address
absl::Status CheckCanListen(const ListenAddress& address);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_

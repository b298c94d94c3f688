// Where a server listens.
#ifndef SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_
#define SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/unique_fd.h"
#include "common/net/address.h"

namespace shoal {

// As ParseNetAddress, but only "localhost", which becomes 127.0.0.1, and numbers: a name may stand
// for several addresses. INVALID_ARGUMENT says what to write.
absl::StatusOr<NetAddress> ParseListenAddress(absl::string_view text);

// Whether the system would let this process listen there now; the address is ParseListenAddress's.
//   ALREADY_EXISTS   another process listens on the port
//   and ErrnoToStatus's codes; all name the address
absl::Status CheckCanListen(const NetAddress& address);

// A socket that listens there, non-blocking; where port 0 was asked for `address` gets the port that
// the system chose. CheckCanListen's errors.
absl::StatusOr<UniqueFd> ListenOn(NetAddress& address);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_LISTEN_ADDRESS_H_

// Which units a node may copy from others: a coordinator's word, signed, for one node and a time.
#ifndef SHOAL_EXPERT_NODE_SERVICE_FETCH_GRANT_H_
#define SHOAL_EXPERT_NODE_SERVICE_FETCH_GRANT_H_

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

// A grant (a serialized FetchGrant, proto/shoal/v1/expert_node.proto) for the node of that name: these
// slices of the container with that identity, until then. `own` is a coordinator's.
absl::StatusOr<std::string> MakeFetchGrant(const TransportSecurity& own, const std::string& node,
                                           const std::string& container_identity,
                                           std::span<const ExpertSlice> slices, absl::Time expires);

// Whether who shows the certificate `peer_pem` may have the slice: a coordinator always, a node with
// a grant that covers it.
//   PERMISSION_DENIED  what the grant lacks
absl::Status CheckMayFetch(const TransportSecurity& own, absl::string_view peer_pem,
                           absl::string_view grant, const std::string& container_identity,
                           const ExpertSlice& slice, absl::Time now);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_FETCH_GRANT_H_

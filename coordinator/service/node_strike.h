// Asks a node to be faulty on purpose.
#ifndef SHOAL_COORDINATOR_SERVICE_NODE_STRIKE_H_
#define SHOAL_COORDINATOR_SERVICE_NODE_STRIKE_H_

#include <string>

#include "absl/status/status.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class DrillRequest;
}  // namespace v1

// Sends it to the node at `address` (host:port; `security` says how); OK where a node that was told to die does not
// answer.
//   FAILED_PRECONDITION  the node was started without --allow-drill
//   INVALID_ARGUMENT     nothing is asked for, or a number is outside its bounds
//   UNAVAILABLE          no answer within seconds
absl::Status StrikeNode(const std::string& address, const ChannelSecurity& security,
                        const v1::DrillRequest& request);

// Ends what strikes left at the node; StrikeNode's errors. Changes nothing where nothing is left, so
// it also tells whether the node takes part in drills.
absl::Status EndStrikes(const std::string& address, const ChannelSecurity& security);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_NODE_STRIKE_H_

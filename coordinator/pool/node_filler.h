// Has an empty node fetch its partition from whoever holds units.
#ifndef SHOAL_COORDINATOR_POOL_NODE_FILLER_H_
#define SHOAL_COORDINATOR_POOL_NODE_FILLER_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/container/partition_writer.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

// What a node says of itself.
struct NodeHoldings {
  std::string name;
  bool empty = false;               // holds nothing yet, and can be filled
  std::vector<ExpertSlice> slices;  // inside the model, disjoint
};
// Asks the node at `address` (host:port; `own` as ChannelSecurity's, `name` the node's by the
// plan). Errors name it.
//   UNAVAILABLE          it does not answer within seconds
//   FAILED_PRECONDITION  it has other terms; names the field and both values
//   INVALID_ARGUMENT     what it says makes no sense
absl::StatusOr<NodeHoldings> AskHoldings(const Manifest& manifest, const std::string& address,
                                         const SecurityPtr& own, const std::string& name);

// What a node has to know of a container to fetch a part of it from strangers.
struct LentModel {
  Manifest manifest;
  std::string manifest_sha256;  // of manifest.json, 64 hexadecimal digits
};
LentModel LentModelOf(const Container& container);
// Asks for it at `address`, where a resident coordinator lends its container, or a node. Errors name
// the address.
//   UNAVAILABLE          it does not answer
//   FAILED_PRECONDITION  it is an empty node
//   and ParseManifest's errors
absl::StatusOr<LentModel> AskModel(const std::string& address, const SecurityPtr& own,
                                   const std::stop_token& stop);

struct FillTask {
  std::string address;               // of the node, host:port
  std::string name;                  // its own
  std::vector<ExpertSlice> slices;   // what it is to hold: inside the model, disjoint
  std::vector<std::string> sources;  // numeric host:port of who holds units, in the order to ask
  SecurityPtr own = {};              // as ChannelSecurity's
};

// Tells a node to fill itself with a part of `model` and waits until it serves it. Blocks for as
// long as the copy takes; `on_progress` is called as it goes, in this thread. After an error, or
// killed, the same call goes on from what the node has finished. Errors name the node.
//   CANCELLED            `stop` came; the node keeps what is finished
//   UNAVAILABLE          the node is not reached or is lost; or it was filled and does not serve
//                        within two minutes, which it then says why
//   and the errors of ExpertNode.Fill (proto/shoal/v1/expert_node.proto)
absl::Status FillNode(const LentModel& model, const FillTask& task,
                      const OnPartitionProgress& on_progress, const std::stop_token& stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_NODE_FILLER_H_

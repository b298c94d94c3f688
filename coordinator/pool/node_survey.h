// Asks running nodes what they were measured to do, before a pool is planned.
#ifndef SHOAL_COORDINATOR_POOL_NODE_SURVEY_H_
#define SHOAL_COORDINATOR_POOL_NODE_SURVEY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/sync/clock.h"
#include "coordinator/pool/pool_forecast.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

// Describe of each address (host:port; `own` as ChannelSecurity's), one after the other; the round trip is the median of a few
// such calls. The rate of the link stays unknown. A node may serve the container or a part of it, or
// be empty: then its kernels were not measured, and are taken to be as slow as the slowest of those
// that were, or, where none was, to keep up with its disk (compute_assumed).
//   UNAVAILABLE          a node does not answer within seconds; names it
//   FAILED_PRECONDITION  a node has other terms (names the field and both values), or measured
//                        nothing
//   INVALID_ARGUMENT     what it says makes no sense
absl::StatusOr<std::vector<NodeRates>> SurveyNodes(const Manifest& manifest,
                                                   const std::vector<std::string>& addresses,
                                                   const SecurityPtr& own, const Clock& clock);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_NODE_SURVEY_H_

// What GET /metrics of shoal-node tells.
#ifndef SHOAL_EXPERT_NODE_PROGRAM_NODE_METRICS_H_
#define SHOAL_EXPERT_NODE_PROGRAM_NODE_METRICS_H_

#include <string>

#include "expert_node/local_expert_backend.h"
#include "expert_node/node_memory_plan.h"
#include "expert_node/service/node_service.h"

namespace shoal {

// docs/operations.md lists the names, which stay as they are.
std::string NodeMetrics(const NodeMemoryPlan& plan, const LocalExpertBackend& experts,
                        const NodeService& service);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_PROGRAM_NODE_METRICS_H_

// A pool's state as a table and as JSON.
#ifndef SHOAL_COORDINATOR_CLI_CLUSTER_REPORT_H_
#define SHOAL_COORDINATOR_CLI_CLUSTER_REPORT_H_

#include <string>

#include "absl/time/time.h"
#include "coordinator/cli/console.h"
#include "coordinator/service/cluster_client.h"

namespace shoal {

// Two looks at a pool, the second `interval` after the first: rates and shares are of the time
// between them. A node that did nothing meanwhile has the shares of all that it did.
struct ClusterLook {
  ClusterStatus before;
  ClusterStatus now;
  absl::Duration interval;
};

// A line a node, under a line for the pool.
std::string FormatCluster(const ClusterLook& look);
Json ClusterJson(const ClusterLook& look);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_CLUSTER_REPORT_H_

// What the operator's commands ask a resident coordinator (proto/shoal/v1/cluster.proto).
#ifndef SHOAL_COORDINATOR_SERVICE_CLUSTER_CLIENT_H_
#define SHOAL_COORDINATOR_SERVICE_CLUSTER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/drill.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

struct ClusterStatus {
  std::string identity;  // of the container
  std::string codec;     // of its experts
  uint64_t epoch = 0;    // of the plan in force
  bool stands_in = false;
  std::vector<ExpertSlice> own_slices;  // that the coordinator computes by the plan
  absl::Duration uptime;
  // `computes` and `slices` as the coordinator says them; a state it does not know is kLost.
  std::vector<PoolNodeStatus> nodes;
};

struct KillStrike {};
struct SlowStrike {
  int64_t factor = 50;  // of each layer's time
  absl::Duration duration = absl::Seconds(10);
};
struct CorruptStrike {
  int64_t records = 16;  // read next, which arrive damaged
};
using Strike = std::variant<KillStrike, SlowStrike, CorruptStrike>;

// Thread-safe. Errors name the coordinator's address. UNAVAILABLE where nobody answers there.
class ClusterClient {
 public:
  // Connects to nothing yet. `address` is host:port. `own` as ChannelSecurity's.
  ClusterClient(const std::string& address, SecurityPtr own);
  ~ClusterClient();

  absl::StatusOr<ClusterStatus> Status();
  // The errors of Cluster.Drain; `wait` at most 10 minutes.
  absl::Status Drain(const std::string& node, absl::Duration wait);
  absl::Status Undrain(const std::string& node);
  absl::StatusOr<PoolPlan> Plan();
  // Waits as long as the coordinator does.
  absl::Status ChangePlan(const PoolPlan& plan, const std::stop_token& stop);
  // `on_token` is called on this thread, as tokens come, like DrillOptions's. CANCELLED at `stop`;
  // DATA_LOSS where the coordinator's messages make no sense; and the errors of Cluster.Drill.
  absl::StatusOr<DrillReport> Drill(
      const std::string& node, const Strike& strike, int64_t tokens,
      const std::function<void(int, int64_t, absl::Duration)>& on_token,
      const std::stop_token& stop);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_CLUSTER_CLIENT_H_

// Brings the list of revoked certificates from a coordinator's identity to the nodes of its pool.
#ifndef SHOAL_COORDINATOR_SERVICE_REVOCATION_SPREADER_H_
#define SHOAL_COORDINATOR_SERVICE_REVOCATION_SPREADER_H_

#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "coordinator/pool/pool_backend.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

class RevocationSpreader {
 public:
  // Looks for a newer list twice a second, in a thread of its own, and brings it to every node that
  // answers; to one that was lost again when it is back. `pool` outlives it; `own` is not null.
  RevocationSpreader(const PoolBackend& pool, SecurityPtr own);

 private:
  void Spread(const std::stop_token& stop);

  const PoolBackend& pool_;
  const SecurityPtr own_;
  // By address: the number of the list that the node has, and how often it had been lost then.
  std::map<std::string, std::pair<int64_t, int64_t>> told_;
  std::jthread thread_;  // last: uses what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_REVOCATION_SPREADER_H_

#include "coordinator/service/revocation_spreader.h"

#include "absl/time/time.h"
#include "common/sync/stop_wait.h"
#include "expert_node/service/membership_service.h"

namespace shoal {
namespace {

constexpr absl::Duration kLookAgainAfter = absl::Milliseconds(500);

}  // namespace

RevocationSpreader::RevocationSpreader(const PoolBackend& pool, SecurityPtr own)
    : pool_(pool), own_(std::move(own)), thread_([this](const std::stop_token& stop) {
        while (WaitUnlessStopped(kLookAgainAfter, stop).ok()) {
          Spread(stop);
        }
      }) {}

void RevocationSpreader::Spread(const std::stop_token& stop) {
  // The number first: a list that comes in between is brought twice, and not missed.
  const int64_t number = own_->revoked().number();
  const std::string list = own_->revoked().pem();
  if (list.empty()) {
    return;
  }
  const bool planned = !pool_.plan().identity.empty();
  for (const PoolNodeStatus& node : pool_.Nodes()) {
    std::pair<int64_t, int64_t>& told = told_[node.address];
    const std::pair<int64_t, int64_t> now{number, node.losses};
    if (node.state == NodeState::kLost || told == now || stop.stop_requested()) {
      continue;
    }
    const ChannelSecurity way{own_, ChannelSecurity::Peer::kNode, planned ? node.name : ""};
    if (BringRevoked(node.address, way, list).ok()) {
      told = now;
    }
  }
}

}  // namespace shoal

// shoal-node before it holds anything: it is described, filled, and then goes on as any node.
#pragma once

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "common/sync/end_signals.h"
#include "expert_node/program/node_flags.h"
#include "expert_node/service/server_security.h"

namespace shoal {

enum class EmptyNodeEnd { kFilled, kSignal };

// Measures the disk, listens at `address` and serves until the partition is there or one of
// `signals` comes; a Fill that is under way is stopped then. One that comes before it listens ends
// the process at once. `address` gets the port that was used. Prints what happens. The errors of CheckFillTarget, of MeasureScratchReadRate,
// but for a disk that is too full to be measured, and of EmptyNodeServer::Start.
absl::StatusOr<EmptyNodeEnd> ServeEmptyNode(const NodeFlags& flags, const EndSignals& signals,
                                            const ServerSecurity& security, NetAddress& address);

}  // namespace shoal

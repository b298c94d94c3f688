// shoal-node from its flags to its end.
#pragma once

#include "expert_node/program/node_flags.h"
#include "expert_node/program/node_report.h"

namespace shoal {

// Opens the experts, serves them until a signal comes, drains. Prints what happens. To be called
// once, from the main thread before any other is started: it waits for signals.
NodeExit RunNode(NodeFlags flags);

}  // namespace shoal

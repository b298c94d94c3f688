// The flags that name the machines of a pool.
#ifndef SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// Checks addresses that are to be connected to, and rewrites each as NetAddress::ToString has it.
// Usage errors, which begin with `what`, where one is none, or is beyond this machine without
// `insecure`; with it, notes on `console` that connections are not protected.
absl::Status CheckNodeAddresses(std::vector<std::string>& addresses, absl::string_view what,
                                bool insecure, Console& console);

// The same for the nodes of a plan that are not the coordinator itself.
absl::Status CheckPlanAddresses(PoolPlan& plan, absl::string_view what, bool insecure,
                                Console& console);

struct PoolFlags {
  std::optional<std::string> nodes;
  int64_t node_wait_seconds = 60;
  bool alone = false;  // without the container's own banks
  bool insecure = false;

  // Flags of a command that computes on a pool, under a heading of their own.
  void Add(FlagSet& flags);
  // --nodes and --insecure alone; `help` is of the first.
  void AddNodes(FlagSet& flags, const std::string& help);
  // The pool that --nodes names; nothing without it. Usage errors where other flags need it, and
  // those of CheckNodeAddresses.
  absl::StatusOr<std::optional<PoolOptions>> Options(Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

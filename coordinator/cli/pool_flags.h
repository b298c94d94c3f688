// The flags that name the machines of a pool.
#ifndef SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/pool/pool_backend.h"

namespace shoal {

struct PoolFlags {
  std::optional<std::string> nodes;
  int64_t node_wait_seconds = 60;
  bool alone = false;  // without the container's own banks
  bool insecure = false;

  void Add(FlagSet& flags);
  // The pool that --nodes names; nothing without it. Usage errors where other flags need it, an
  // address is none, or one beyond this machine is given without --insecure; and notes on `console`
  // that connections are not protected.
  absl::StatusOr<std::optional<PoolOptions>> Options(Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_POOL_FLAGS_H_

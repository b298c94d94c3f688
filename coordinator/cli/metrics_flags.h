// The flag that has a program tell its metrics.
#ifndef SHOAL_COORDINATOR_CLI_METRICS_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_METRICS_FLAGS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/address.h"
#include "coordinator/cli/command_line.h"
#include "expert_node/service/metrics_server.h"

namespace shoal {

struct MetricsFlags {
  std::optional<std::string> address;

  void Add(FlagSet& flags);
  // Where to listen, free at the moment; nothing without the flag. Usage errors where it is no address, or is beyond
  // this machine without `insecure`; CheckCanListen's.
  absl::StatusOr<std::optional<NetAddress>> Address(bool insecure) const;
};

// Listens there and says so; null without an address. MetricsServer::Start's errors.
absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(
    const std::optional<NetAddress>& address, std::function<std::string()> collect,
    Console& console);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_METRICS_FLAGS_H_

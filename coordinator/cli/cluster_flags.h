// Which resident coordinator a `shoal cluster` command speaks to.
#ifndef SHOAL_COORDINATOR_CLI_CLUSTER_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_CLUSTER_FLAGS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/console.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/service/cluster_client.h"

namespace shoal {

// Where `shoal serve` listens by itself.
inline constexpr char kDefaultClusterAddress[] = "127.0.0.1:7070";

struct ClusterFlags {
  std::optional<std::string> at;
  ProtectionFlags protection;

  void Add(FlagSet& flags);
  // Usage errors of CheckNodeAddresses; TlsFlags::Load's.
  absl::StatusOr<std::unique_ptr<ClusterClient>> Client(Console& console) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_CLUSTER_FLAGS_H_

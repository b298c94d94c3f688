#include "coordinator/cli/cluster_flags.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/pool_flags.h"

namespace shoal {

void ClusterFlags::Add(FlagSet& flags) {
  flags.Heading("Coordinator");
  flags.Text("--at", "ADDRESS", &at,
             absl::StrCat("Where `shoal serve` listens (default ", kDefaultClusterAddress, ")"));
  flags.Switch("--insecure", &insecure, "Allow an address beyond this machine without protection");
}

absl::StatusOr<std::unique_ptr<ClusterClient>> ClusterFlags::Client(Console& console) const {
  std::vector<std::string> address = {at.value_or(kDefaultClusterAddress)};
  SHOAL_RETURN_IF_ERROR(CheckNodeAddresses(address, "--at", insecure, console));
  return std::make_unique<ClusterClient>(address.front());
}

}  // namespace shoal

#include "coordinator/cli/cluster_flags.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace shoal {

void ClusterFlags::Add(FlagSet& flags) {
  flags.Heading("Coordinator");
  flags.Text("--at", "ADDRESS", &at,
             absl::StrCat("Where `shoal serve` listens (default ", kDefaultClusterAddress, ")"));
  protection.Add(flags);
}

absl::StatusOr<std::unique_ptr<ClusterClient>> ClusterFlags::Client(Console& console) const {
  std::vector<std::string> address = {at.value_or(kDefaultClusterAddress)};
  SHOAL_RETURN_IF_ERROR(CheckNodeAddresses(address, "--at", protection.protection(), console));
  SHOAL_ASSIGN_OR_RETURN(SecurityPtr own, protection.tls.Load(console));
  return std::make_unique<ClusterClient>(address.front(), std::move(own));
}

}  // namespace shoal

#include "coordinator/cli/metrics_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/cli/console.h"
#include "expert_node/service/listen_address.h"

namespace shoal {

void MetricsFlags::Add(FlagSet& flags) {
  flags.Text("--metrics", "ADDRESS", &address,
             "Also answer GET http://IP:PORT/metrics, for Prometheus\n(default: do not)");
}

absl::StatusOr<std::optional<NetAddress>> MetricsFlags::Address(bool insecure) const {
  if (!address) {
    return std::nullopt;
  }
  absl::StatusOr<NetAddress> parsed = ParseListenAddress(*address);
  if (!parsed.ok()) {
    return UsageError(absl::StrCat("--metrics: ", parsed.status().message()));
  }
  if (!IsLoopback(*parsed) && !insecure) {
    return UsageError(absl::StrCat("--metrics ", parsed->ToString(),
                                   " is not loopback, and metrics are plain HTTP for whoever ",
                                   "reaches the port. Pass --insecure to accept that"));
  }
  SHOAL_RETURN_IF_ERROR(CheckCanListen(*parsed));
  return *std::move(parsed);
}

absl::StatusOr<std::unique_ptr<MetricsServer>> StartMetrics(
    const std::optional<NetAddress>& address, std::function<std::string()> collect,
    Console& console) {
  if (!address) {
    return nullptr;
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<MetricsServer> server,
                         MetricsServer::Start(*address, std::move(collect)));
  console.Note(absl::StrCat("shoal: metrics at http://", server->address().ToString(), "/metrics"));
  return server;
}

}  // namespace shoal

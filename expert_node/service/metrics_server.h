// Answers GET /metrics over HTTP, for Prometheus and people.
#ifndef SHOAL_EXPERT_NODE_SERVICE_METRICS_SERVER_H_
#define SHOAL_EXPERT_NODE_SERVICE_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/address.h"

namespace shoal {

// One thread answers everybody. No library of HTTP: Debian's puts no end to the headers of a request
// nor to the time that it takes, and one path with one answer needs little. A connection brings one
// request, of at most 4 KiB, and has two seconds for request and answer together; of more than 16 at
// a time the rest wait with the system.
class MetricsServer {
 public:
  // Listens. `collect` gives the text of an answer (common/metrics/prometheus_text.h); it is called
  // by the server's thread until the server is destroyed.
  //   CheckCanListen's errors
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(NetAddress address,
                                                              std::function<std::string()> collect);
  // Cuts what is under way.
  ~MetricsServer();

  // With the port that the system chose where 0 was asked for.
  const NetAddress& address() const;

 private:
  struct Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_METRICS_SERVER_H_

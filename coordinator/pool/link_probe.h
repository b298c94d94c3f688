// Measures the way to a node and back, without what the node does in between.
#ifndef SHOAL_COORDINATOR_POOL_LINK_PROBE_H_
#define SHOAL_COORDINATOR_POOL_LINK_PROBE_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/manifest.h"
#include "common/sync/clock.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

struct LinkProbeOptions {
  int64_t round_trips = 200;                 // of one row, at least 1
  int64_t batches = 7;                       // large ones, of each kind, at least 1
  uint64_t batch_bytes = uint64_t{4} << 20;  // of a batch's rows, at most; at least one row
  ChannelSecurity security = {};
};

struct LinkMeasurement {
  std::string name;  // the node's own
  std::string address;
  // A request for one row and its reply, less the time for which the node says that it queued and
  // computed.
  int64_t round_trips = 0;
  absl::Duration round_trip_p50;
  absl::Duration round_trip_p95;
  // Medians over large batches: rows to the node, sums from it. Absent where a batch took no
  // longer than a small message does, as far as can be told.
  int64_t batch_rows = 0;
  uint64_t sent_bytes = 0;      // rows of a batch
  uint64_t received_bytes = 0;  // sums of a batch
  std::optional<double> send_bytes_per_second;
  std::optional<double> receive_bytes_per_second;
};

// The p-th percentile by nearest rank; `times` is not empty and is sorted by the call.
absl::Duration PercentileOf(std::vector<absl::Duration>& times, int percent);

// Opens a stream of its own to the node at `address`, which serves the container of `manifest` or a
// part of it, and sends one request after another. A node that others use meanwhile is measured
// with what they take.
//   UNAVAILABLE          the node does not answer, or the stream ended; names it
//   FAILED_PRECONDITION  other terms (names the field and both values), or the node holds nothing
//   CANCELLED            `stop`
//   and errors of the node
absl::StatusOr<LinkMeasurement> MeasureLink(const Manifest& manifest, const std::string& address,
                                            const LinkProbeOptions& options, const Clock& clock,
                                            std::stop_token stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_LINK_PROBE_H_

// The gRPC service ExpertNode (proto/shoal/v1/expert_node.proto, docs/protocol.md): a backend's
// experts for coordinators on other machines.
#ifndef SHOAL_EXPERT_NODE_SERVICE_NODE_SERVICE_H_
#define SHOAL_EXPERT_NODE_SERVICE_NODE_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log_line.h"
#include "common/sync/clock.h"
#include "expert_node/expert_backend.h"
#include "expert_node/expert_model.h"
#include "expert_node/service/call_limits.h"
#include "expert_node/service/held_units.h"
#include "expert_node/service/node_counters.h"
#include "expert_node/service/transport_security.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shoal {

class ServerGuard;

namespace v1 {
class Terms;
}  // namespace v1

// Thread-safe. Requests are read and checked by gRPC's threads as they arrive, which answer pings
// too. The backend is called by the service's own workers, or, for a request of a few rows that
// would be handed to an idle one, by the thread that read it, one such at a time. Replies are written
// as they are ready.
// A stream that is cancelled or breaks a rule stops its work. PrefetchHint is checked and otherwise
// ignored for now.
class NodeService {
 public:
  struct Options {
    std::string name;       // as CheckNodeName (common/container/slice_json.h) wants it
    std::string directory;  // of the container or partition; its free space is described
    int64_t max_rows = 512;
    // Layers of a stream that wait, are computed, or whose reply is not sent yet, before it is read
    // no further.
    int max_queued_layers = 4;
    int max_streams = 4;  // Execute; one more is refused with RESOURCE_EXHAUSTED
    int max_fetches = 2;  // FetchUnits and FetchModel together; likewise
    int num_workers = 1;  // calls of the backend at a time, over all streams
    // The most rows that are computed on the thread of gRPC that read them: a token, and some in a
    // batch. Handing a request over costs as much as a tenth of the round trip on loopback. 0 where
    // several nodes share a process, and with it gRPC's few threads.
    int max_rows_on_reader = 4;
    // Measured at start, and described; 0: not measured.
    uint64_t read_bytes_per_second = 0;
    uint64_t compute_bytes_per_second = 0;
    SecurityPtr own = {};  // of the server; null: without TLS
    // Gets a line for a layer that fails, at most 60 a minute, from any thread.
    LogWriter log = [](const LogLine&) {};
  };

  // `backend`, `model`, `units` and `clock` outlive the service; `terms` is copied. The service
  // outlives the server that it is registered with.
  //   INVALID_ARGUMENT   an option is out of its range; names it
  static absl::StatusOr<std::unique_ptr<NodeService>> Create(
      ExpertBackend& backend, const ExpertModel& model, const v1::Terms& terms, HeldUnits& units,
      const Options& options, const Clock& clock);
  ~NodeService();

  // For ServerBuilder::RegisterService; the service's.
  grpc::Service& grpc_service();
  // By which its health can be asked for: the service alone, and with the container's identity behind a
  // slash, which a node of another model does not know.
  std::vector<std::string> HealthNames() const;
  // The largest message a rule-abiding client sends: what the server should accept at most.
  int64_t MaxRequestBytes() const;
  // The server's, before it takes calls; there as long as that. Execute streams have a CallWatch of it.
  void SetGuard(ServerGuard& guard);
  // What one caller may have open of its streams and copies: some are left for others.
  CallLimits::Changes Limits() const;
  // NodeMessageBytes of its options.
  uint64_t MessageBytes() const;

  // What the service is doing and has done.
  struct State {
    int open_streams = 0;  // Execute
    bool draining = false;
    NodeCounts counts;
  };
  State state() const;

  // From now on new streams are refused with UNAVAILABLE, and those that are open answer what has
  // been read, then end with UNAVAILABLE. Returns at once. Describe still answers, and says so.
  void Drain();
  // Waits until no Execute stream is open, `timeout` at most; false where some are left.
  bool WaitUntilDrained(absl::Duration timeout);

 private:
  class Impl;
  explicit NodeService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What requests and replies of a node take in memory at most: all streams full, and copies in bulk.
// From sizes alone.
uint64_t NodeMessageBytes(const ExpertModel& model, const NodeService::Options& options);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_NODE_SERVICE_H_

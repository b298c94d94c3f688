// Where the connections of a server come in: how many, from where, and which are closed because nothing
// comes of them.
#ifndef SHOAL_EXPERT_NODE_SERVICE_CONNECTION_GATE_H_
#define SHOAL_EXPERT_NODE_SERVICE_CONNECTION_GATE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/io/unique_fd.h"
#include "expert_node/service/refusal_log.h"

namespace shoal {

// "1.2.3.4:5" or "[::1]:5" of what gRPC calls a peer ("ipv4:1.2.3.4:5", "ipv6:%5B::1%5D:5").
std::string ConnectionOfPeer(absl::string_view peer);
// Its host alone, or of IPv6 the network of 64 bits, which one machine may have all of.
std::string OriginOfConnection(absl::string_view connection);

// Accepts instead of gRPC, which takes everything until it has no descriptor left, and then (1.51) never
// accepts again. Thread-safe.
class ConnectionGate {
 public:
  struct Options {
    // At a time. No more than the process has descriptors for: each takes two.
    int most = 256;
    // From one origin; loopback is that of all programs of the machine.
    int most_of_one = 64;
    int most_of_loopback = 256;
    // One that brings no whole call for so long is closed,
    absl::Duration first_call_within = absl::Seconds(60);
    // and one whose last call ended so long ago: behind the server's own limit for connections without
    // any call, so that it ends those that have only broken ones.
    absl::Duration call_within = absl::Minutes(11);
  };
  // `hand_over` gets connections, from the gate's thread, and closes them. `log`, which may be
  // null, outlives the gate. `listener` is ListenOn's.
  static absl::StatusOr<std::unique_ptr<ConnectionGate>> Start(
      UniqueFd listener, const Options& options, std::function<void(int fd)> hand_over,
      RefusalLog* log);
  ~ConnectionGate();

  // Accepts no more, and frees the port.
  void Close();

  // A whole call has come on a connection (ConnectionOfPeer); it has ended.
  void OnCall(const std::string& connection);
  void OnCallEnd(const std::string& connection);

  int num_open() const;

 private:
  struct Impl;
  explicit ConnectionGate(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_CONNECTION_GATE_H_

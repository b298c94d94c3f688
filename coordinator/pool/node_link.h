// One node's Execute stream as the coordinator sees it: opened, greeted, and kept in step.
#ifndef SHOAL_COORDINATOR_POOL_NODE_LINK_H_
#define SHOAL_COORDINATOR_POOL_NODE_LINK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class DescribeReply;
class ExecuteRequest;
class Hello;
class LayerCost;
class LayerReply;
}  // namespace v1

// Thread-safe.
class NodeLink {
 public:
  struct Options {
    std::string address;  // host:port
    uint64_t max_message_bytes = 0;
    ChannelSecurity security = {};
  };
  // The reply, or why there is none: UNAVAILABLE where the stream ended first, INVALID_ARGUMENT
  // where the node ended it because a message broke the rules. Called once, from a thread of gRPC,
  // without a lock; returns quickly.
  using OnReply = std::function<void(absl::StatusOr<std::unique_ptr<v1::LayerReply>>)>;

  // Connects to nothing yet. Every stream begins with `hello`. `on_change` is called like OnReply
  // after a stream was welcomed and after it ended. `clock` outlives the link.
  NodeLink(Options options, const v1::Hello& hello, std::function<void()> on_change,
           const Clock& clock);
  // Ends the stream and waits until no callback runs or will.
  ~NodeLink();
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  // Begins a stream where there is none; whether it was welcomed shows in view().
  void Open();
  // Ends the stream: the node has been silent for too long. The next one has a connection of its
  // own: whoever vanished without a word may be back and know nothing of this one.
  void Break();

  struct View {
    bool open = false;       // welcomed, and not ended
    bool under_way = false;  // begun: open, or not welcomed yet
    // Of the last stream that ended, or OK. Its code is the node's where it refused the greeting.
    absl::Status last_error;
    absl::Time last_heard;         // when the last message of this stream came, or it began
    uint64_t bytes_in_flight = 0;  // of requests that are not answered, and of their replies
    std::shared_ptr<const v1::DescribeReply> node;  // of the last welcome; null before the first
  };
  View view() const;

  // Sends a request whose `layer.id` nobody else uses. False, and no call of `on_reply`, where the
  // link is not open.
  bool Send(std::shared_ptr<const v1::ExecuteRequest> request, OnReply on_reply);
  // The reply to this request is of no use any more: it will not be handed on.
  void Forget(uint64_t id);
  // Why the stream's node is not to be spoken to any more: its certificate was revoked or expired
  // since the handshake. OK without TLS, and where no stream is open.
  absl::Status CheckPeer() const;
  // Asks for a sign of life, which shows in view().last_heard.
  void Ping();

 private:
  class Stream;
  struct Core;
  struct Connection;
  // Owned here and not in the core, whose last owner may be a thread of gRPC: a channel that goes
  // there would wait for that very thread.
  const Options options_;
  std::unique_ptr<Connection> connection_;  // replaced with the core's mutex held
  std::shared_ptr<Core> core_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_NODE_LINK_H_

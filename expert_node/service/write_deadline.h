// A limit on how long a client may leave a message of a stream untaken.
#ifndef SHOAL_EXPERT_NODE_SERVICE_WRITE_DEADLINE_H_
#define SHOAL_EXPERT_NODE_SERVICE_WRITE_DEADLINE_H_

#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <memory>

#include "absl/time/time.h"

namespace grpc {
class Alarm;
}  // namespace grpc

namespace shoal {

// Cancels a call whose message is not taken in time. Keepalive does not: a client that answers
// pings and never reads is alive. Belongs to the reactor of the call, and is called like it: one
// call at a time, Begin before a message is written and End when that is done.
class WriteDeadline {
 public:
  // A message may take `limit`, and a second more for each megabyte. `context` outlives the object.
  WriteDeadline(grpc::CallbackServerContext& context, absl::Duration limit);
  ~WriteDeadline();
  WriteDeadline(const WriteDeadline&) = delete;
  WriteDeadline& operator=(const WriteDeadline&) = delete;

  void Begin(size_t message_bytes);
  void End();

 private:
  struct State;
  const absl::Duration limit_;
  const std::shared_ptr<State> state_;
  std::unique_ptr<grpc::Alarm> alarm_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_WRITE_DEADLINE_H_

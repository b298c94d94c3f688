// What a server knows of one open call, from its beginning to its end.
#ifndef SHOAL_EXPERT_NODE_SERVICE_CALL_WATCH_H_
#define SHOAL_EXPERT_NODE_SERVICE_CALL_WATCH_H_

#include <cstddef>
#include <memory>
#include <string>

#include "expert_node/service/call_limits.h"
#include "expert_node/service/live_calls.h"

namespace grpc {
class ServerContextBase;
}  // namespace grpc

namespace shoal {

class ServerGuard;

// Counts the call against its caller's limits and its connection's, and lists it with those that are cut
// when they hang or their caller is not a member any more. A call too many is cut at once.
// Belongs to the call's reactor or interceptor, and ends before the call does; reads and writes may
// be told of from any thread.
class CallWatch {
 public:
  // `guard` outlives the object; null: there is no such server, and nothing is done.
  CallWatch(ServerGuard* guard, grpc::ServerContextBase& call, CallKind kind);
  ~CallWatch();
  CallWatch(const CallWatch&) = delete;
  CallWatch& operator=(const CallWatch&) = delete;

  // A message is waited for, and has come.
  void BeginRead();
  void EndRead();
  // A message of so many bytes is given to gRPC, and has been taken.
  void BeginWrite(size_t message_bytes);
  void EndWrite();

 private:
  ServerGuard* const guard_;
  const CallKind kind_;
  grpc_call* const call_;
  std::string connection_ = {};
  std::string limit_name_ = {};
  std::shared_ptr<LiveCall> live_ = {};
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_CALL_WATCH_H_

#include "expert_node/service/call_watch.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "absl/status/status.h"
#include "common/sync/clock.h"
#include "expert_node/service/server_security.h"

namespace shoal {

CallWatch::CallWatch(ServerGuard* guard, grpc::ServerContextBase& call, CallKind kind)
    : guard_(guard), kind_(kind), call_(call.c_call()) {
  if (guard_ == nullptr) {
    live_ = std::make_shared<LiveCall>(Caller{});
    return;
  }
  CallOrigin origin = OriginOf(call, guard_->security(), guard_->listens());
  connection_ = std::move(origin.connection);
  limit_name_ = std::move(origin.limit_name);
  live_ = std::make_shared<LiveCall>(std::move(origin.caller));
  guard_->live().Add(call_, live_);
  if (guard_->gate() != nullptr) {
    guard_->gate()->OnCall(connection_);
  }
  if (const absl::Status within = guard_->limits().Enter(kind_, limit_name_); !within.ok()) {
    guard_->log().Add(within.message());
    CutCall(call_, within);
  }
}

CallWatch::~CallWatch() {
  if (guard_ == nullptr) {
    return;
  }
  guard_->live().Remove(call_);
  guard_->limits().Leave(kind_, limit_name_);
  if (guard_->gate() != nullptr) {
    guard_->gate()->OnCallEnd(connection_);
  }
}

void CallWatch::BeginRead() { live_->reading.Begin(Clock::Real().Now()); }
void CallWatch::EndRead() { live_->reading.End(); }

void CallWatch::BeginWrite(size_t message_bytes) {
  live_->written_bytes = message_bytes;
  live_->writing.Begin(Clock::Real().Now());
}
void CallWatch::EndWrite() { live_->writing.End(); }

}  // namespace shoal

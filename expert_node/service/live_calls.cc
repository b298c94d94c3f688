#include "expert_node/service/live_calls.h"

#include <grpc/grpc.h>

#include <utility>

namespace shoal {

void LiveCalls::Add(grpc_call* call, Caller caller) {
  MutexLock lock(&mutex_);
  calls_.insert_or_assign(call, std::move(caller));
}

void LiveCalls::Remove(grpc_call* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
}

void LiveCalls::Cut(const std::function<bool(const Caller&)>& is_out,
                    const std::function<void(const Caller&)>& on_cut) {
  // With the lock held: whoever removes a call waits, so that it is open here.
  MutexLock lock(&mutex_);
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (is_out(it->second)) {
      grpc_call_cancel_with_status(it->first, GRPC_STATUS_CANCELLED, "cut", nullptr);
      on_cut(it->second);
      it = calls_.erase(it);
    } else {
      ++it;
    }
  }
}

}  // namespace shoal

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
  std::map<grpc_call*, Caller> out;
  {
    MutexLock lock(&mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      if (is_out(it->second)) {
        grpc_call_ref(it->first);  // it may end from here on
        out.insert(calls_.extract(it++));
      } else {
        ++it;
      }
    }
  }
  // Without the lock: cancelling may end the call in this thread, which removes it.
  for (const auto& [call, caller] : out) {
    grpc_call_cancel_with_status(call, GRPC_STATUS_CANCELLED, "cut", nullptr);
    grpc_call_unref(call);
    on_cut(caller);
  }
}

}  // namespace shoal

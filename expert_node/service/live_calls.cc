#include "expert_node/service/live_calls.h"

#include <grpc/grpc.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal {

void LiveCalls::Add(grpc_call* call, std::shared_ptr<const LiveCall> live) {
  MutexLock lock(&mutex_);
  calls_.insert_or_assign(call, std::move(live));
}

void LiveCalls::Remove(grpc_call* call) {
  MutexLock lock(&mutex_);
  calls_.erase(call);
}

void LiveCalls::Cut(const std::function<absl::Status(const LiveCall&)>& check) {
  std::vector<std::pair<grpc_call*, absl::Status>> out;
  {
    MutexLock lock(&mutex_);
    for (auto it = calls_.begin(); it != calls_.end();) {
      const absl::Status how = check(*it->second);
      if (how.ok()) {
        ++it;
        continue;
      }
      grpc_call_ref(it->first);  // it may end from here on
      out.emplace_back(it->first, how);
      it = calls_.erase(it);
    }
  }
  // Without the lock: cancelling may end the call in this thread, which removes it.
  for (const auto& [call, how] : out) {
    CutCall(call, how);
    grpc_call_unref(call);
  }
}

void CutCall(grpc_call* call, const absl::Status& how) {
  grpc_call_cancel_with_status(call, static_cast<grpc_status_code>(how.code()),
                               std::string(how.message()).c_str(), nullptr);
}

}  // namespace shoal

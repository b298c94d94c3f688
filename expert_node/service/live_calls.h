// The calls that are open on a server, and by whom: so that they can be cut when their caller is not
// a member any more.
#ifndef SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_
#define SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_

#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"
#include "expert_node/service/authorization.h"

struct grpc_call;

namespace shoal {

// Thread-safe.
class LiveCalls {
 public:
  // The call is gRPC's, and stays open until Remove.
  void Add(grpc_call* call, Caller caller);
  void Remove(grpc_call* call);

  // Ends every call whose caller `is_out`; for its peer it is cancelled. Hands each to `on_cut`.
  void Cut(const std::function<bool(const Caller&)>& is_out,
           const std::function<void(const Caller&)>& on_cut);

 private:
  Mutex mutex_;
  std::map<grpc_call*, Caller> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_

// The calls that are open on a server, and by whom: so that they can be cut when their caller is not
// a member any more, or leaves them hanging.
#ifndef SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_
#define SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/mutex.h"
#include "expert_node/service/authorization.h"

struct grpc_call;

namespace shoal {

// Since when something goes on; thread-safe.
class Since {
 public:
  void Begin(absl::Time now) { began_ns_ = absl::ToUnixNanos(now); }
  void End() { began_ns_ = kNever; }
  // For how long; zero where it does not.
  absl::Duration Lasts(absl::Time now) const {
    const int64_t began = began_ns_;
    return began == kNever ? absl::ZeroDuration() : now - absl::FromUnixNanos(began);
  }

 private:
  static constexpr int64_t kNever = -1;
  std::atomic<int64_t> began_ns_{kNever};
};

struct LiveCall {
  explicit LiveCall(Caller whose) : caller(std::move(whose)) {}

  const Caller caller;
  Since reading;                         // a message is waited for
  Since writing;                         // a message has not been taken yet
  std::atomic<size_t> written_bytes{0};  // of that
};

// Thread-safe.
class LiveCalls {
 public:
  // The call is gRPC's, and stays open until Remove.
  void Add(grpc_call* call, std::shared_ptr<const LiveCall> live);
  void Remove(grpc_call* call);

  // Ends every call for which `check` gives an error; that is how it ends for its peer.
  void Cut(const std::function<absl::Status(const LiveCall&)>& check);

 private:
  Mutex mutex_;
  std::map<grpc_call*, std::shared_ptr<const LiveCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

// Ends a call that is open; for its peer it ends so. The message is one line.
void CutCall(grpc_call* call, const absl::Status& how);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_LIVE_CALLS_H_

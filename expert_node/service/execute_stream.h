// One Execute stream of a node: a state machine driven by gRPC's callbacks and the node's workers.
#ifndef SHOAL_EXPERT_NODE_SERVICE_EXECUTE_STREAM_H_
#define SHOAL_EXPERT_NODE_SERVICE_EXECUTE_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/log/log_limit.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_backend.h"
#include "expert_node/service/call_watch.h"
#include "expert_node/service/node_counters.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/work_queue.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

namespace v1 {
class DescribeReply;
class ExecuteReply;
class ExecuteRequest;
class LayerRequest;
class Terms;
}  // namespace v1

class ExecuteStream;
class ServerGuard;

// What all streams of a node have in common.
struct ExecuteContext {
  ExpertBackend& backend;
  const RequestRules& rules;
  const v1::Terms& terms;
  const Clock& clock;
  // Calls of the backend. Never two of gRPC's threads, which are two at least, are at it: pings are
  // answered and cancellations heard meanwhile.
  WorkQueue& work;
  NodeCounters& counters;
  LogLimit& log;  // of layers that fail
  int max_queued_layers = 0;
  int max_rows_on_reader = 0;
  std::function<void(v1::DescribeReply*)> describe;
  std::function<void(ExecuteStream*)> on_done;  // last; the stream is gone after it
};

// Deletes itself when gRPC is done with it. Reads one message at a time and writes one at a time;
// a layer is in one slot from its arrival until its reply is sent, and slots are reused.
class ExecuteStream final : public grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteReply> {
 public:
  // Begins to read. `context` outlives the stream, and so does `guard`, which may be null.
  ExecuteStream(const ExecuteContext& context, ServerGuard* guard,
                grpc::CallbackServerContext& call);
  ~ExecuteStream() override;

  // Reads no further, answers what was read, and ends with UNAVAILABLE.
  void Drain();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  struct Slot;
  enum class Pending { kAnswer, kDrop };

  // Makes work or an answer of the message in `slot`. An error breaks the stream.
  absl::Status Accept(Slot* slot);
  absl::Status AcceptHello(Slot* slot);
  absl::Status AcceptLayer(Slot* slot);
  // Sends slot's answer before all others; they are small.
  void AnswerFirst(Slot* slot);
  // Any thread.
  void Compute(Slot* slot);
  void LogFailure(const v1::LayerRequest& request, const absl::Status& status) const;
  // Of a layer that was computed. The stream may be gone when it returns, unless gRPC called.
  void Answer(Slot* slot);
  // No further message is read. What was read is answered first, or dropped.
  void End(const absl::Status& status, Pending pending);
  // Starts what can be started. True, only once the stream is ending_, where the caller must call
  // Finish, without the mutex and as the last thing it does: the stream may be gone when that
  // returns.
  bool Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A slot to read into; null where back-pressure holds.
  Slot* TakeSlot() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ExecuteContext& context_;
  CallWatch watch_;
  std::stop_source stop_;                                   // of the work
  bool greeted_ = false;                                    // only OnReadDone looks at it
  ExpertArithmetic arithmetic_ = ExpertArithmetic::kExact;  // from the hello on
  absl::Status end_;  // how the stream ends; constant once finished_

  Mutex mutex_;
  std::vector<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot*> idle_ ABSL_GUARDED_BY(mutex_);
  Slot* reading_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Slot* writing_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::deque<Slot*> outgoing_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> ids_ ABSL_GUARDED_BY(mutex_);  // of layers without a reply
  int layers_ ABSL_GUARDED_BY(mutex_) = 0;             // slots that hold one
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;         // of them given to the workers
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  bool dropping_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_EXECUTE_STREAM_H_

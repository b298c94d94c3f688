// One Generate or Chat call.
#ifndef SHOAL_COORDINATOR_SERVICE_GENERATION_STREAM_H_
#define SHOAL_COORDINATOR_SERVICE_GENERATION_STREAM_H_

#include <grpcpp/alarm.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log_line.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/generate.h"
#include "coordinator/model.h"
#include "coordinator/service/call_stop.h"
#include "coordinator/service/inference_counters.h"
#include "coordinator/service/inference_rules.h"
#include "coordinator/service/session_scheduler.h"
#include "coordinator/service/text_line.h"
#include "coordinator/service/turns.h"
#include "expert_node/service/call_watch.h"

namespace shoal {

namespace v1 {
class GenerateEvent;
}  // namespace v1

class GenerationStream;

// What the calls of a service share. All of it outlives them.
struct GenerationContext {
  const Model& model;
  const InferenceRules& rules;
  const ChatTemplate* chat;  // null where the model has no layout
  const std::vector<std::unique_ptr<Session>>& sessions;
  SessionScheduler& scheduler;
  Turns& turns;
  TextLine& texts;
  InferenceCounters& counters;
  const Clock& clock;
  absl::Duration max_time;      // of a call; infinite: no limit
  absl::Duration behind_limit;  // for a reader whose session others wait for
  LogWriter log;                // thread-safe
  std::function<void(GenerationStream* stream)> on_done;
};

// Turns the prompt into tokens, waits in line, generates, and sends what comes of it, on threads of others.
// At most kMaxEvents wait to be sent: a reader that is slower keeps its session, but not the turn. Deletes
// itself when gRPC is done with it.
class GenerationStream final : public grpc::ServerWriteReactor<v1::GenerateEvent>,
                               private SessionJob {
 public:
  static constexpr size_t kMaxEvents = 64;

  // `caller` is SessionJob's; `stop` stops it. `guard`, which may be null, outlives it. Begin starts it,
  // once.
  GenerationStream(const GenerationContext& context, ServerGuard* guard,
                   grpc::CallbackServerContext& call, GenerationInput input, std::string caller,
                   std::shared_ptr<CallStop> stop);
  ~GenerationStream() override;
  void Begin();

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // SessionJob:
  const std::string& caller() const override { return caller_; }
  void OnPlace(int64_t place) override;
  void Run(int session) override;
  void Ended() override;
  void Dropped(const absl::Status& why) override;

  void ReadPrompt();
  void OnStop();
  bool OnToken(const TokenEvent& event);
  void OnPrefill(int64_t done, int64_t total);
  // Lets others have the turn, and waits for it; also while the reader is behind.
  void PassTurn();
  // Waits until the reader has caught up, or the call is stopped: by others that wait, at last.
  void WaitForReader();
  bool IsBehind() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushFinished(const GenerateResult& result);
  // Tells the log how the call ended.
  void Log(const absl::Status& status) const;
  // What a call that was stopped ends with.
  absl::Status StopStatus() const;

  void Push(v1::GenerateEvent event);
  // Ends the call when all events are sent. The last thing that may be done with the object.
  void End(const absl::Status& status);
  // Sends the next event, or the end, where it is time.
  void SendNext();

  const GenerationContext& context_;
  GenerationInput input_;
  const std::string caller_;
  const uint64_t number_;  // the call's in logs; the client gets it first of all
  const std::shared_ptr<CallStop> stop_;
  const std::stop_token stop_token_;
  const absl::Time arrived_;
  // Of the thread that has the job at the time.
  std::vector<int32_t> prompt_;
  bool has_turn_ = false;
  absl::Time began_;
  int64_t prefilled_ = 0;  // tokens
  int64_t generated_ = 0;
  std::optional<absl::Time> first_token_;
  absl::Time last_token_;  // once there is a first
  absl::StatusOr<GenerateResult> result_;

  CallWatch watch_;
  grpc::Alarm max_time_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<v1::GenerateEvent>> events_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<v1::GenerateEvent> sending_ ABSL_GUARDED_BY(mutex_);
  bool broken_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more can be sent
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // last: uses what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_GENERATION_STREAM_H_

#include "expert_node/service/write_deadline.h"

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>

#include <chrono>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {
namespace {

constexpr double kSlowestBytesPerSecond = 1e6;

}  // namespace

// Shared with alarms, which gRPC may still run when the call is over.
struct WriteDeadline::State {
  Mutex mutex;
  grpc::CallbackServerContext* context ABSL_GUARDED_BY(mutex) = nullptr;  // null: it is over
  uint64_t writes_begun ABSL_GUARDED_BY(mutex) = 0;
  bool writing ABSL_GUARDED_BY(mutex) = false;
};

WriteDeadline::WriteDeadline(grpc::CallbackServerContext& context, absl::Duration limit)
    : limit_(limit), state_(std::make_shared<State>()) {
  MutexLock lock(&state_->mutex);
  state_->context = &context;
}

WriteDeadline::~WriteDeadline() {
  MutexLock lock(&state_->mutex);
  state_->context = nullptr;
}

void WriteDeadline::Begin(size_t message_bytes) {
  uint64_t number = 0;
  {
    MutexLock lock(&state_->mutex);
    number = ++state_->writes_begun;
    state_->writing = true;
  }
  const absl::Duration limit =
      limit_ + absl::Seconds(static_cast<double>(message_bytes) / kSlowestBytesPerSecond);
  alarm_ = std::make_unique<grpc::Alarm>();
  alarm_->Set(
      std::chrono::system_clock::now() + absl::ToChronoMicroseconds(limit),
      [state = state_, number](bool rang) {
        MutexLock lock(&state->mutex);
        if (rang && state->context != nullptr && state->writing && state->writes_begun == number) {
          state->context->TryCancel();
        }
      });
}

void WriteDeadline::End() {
  {
    MutexLock lock(&state_->mutex);
    state_->writing = false;
  }
  alarm_.reset();
}

}  // namespace shoal

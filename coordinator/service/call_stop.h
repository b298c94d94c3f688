// Why and how the work of a client's call is stopped.
#ifndef SHOAL_COORDINATOR_SERVICE_CALL_STOP_H_
#define SHOAL_COORDINATOR_SERVICE_CALL_STOP_H_

#include <atomic>
#include <stop_token>

namespace shoal {

enum class StopCause { kNone, kClientGone, kReaderBehind, kMaxTime, kServerEnds };

// Thread-safe. Shared by a call and everybody who may stop it, who may be later than its end.
class CallStop {
 public:
  // The first cause counts.
  void Request(StopCause cause) {
    StopCause none = StopCause::kNone;
    cause_.compare_exchange_strong(none, cause);
    source_.request_stop();
  }
  StopCause cause() const { return cause_; }
  std::stop_token token() const { return source_.get_token(); }

 private:
  std::atomic<StopCause> cause_{StopCause::kNone};
  std::stop_source source_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_CALL_STOP_H_

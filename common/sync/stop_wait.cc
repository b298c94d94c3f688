#include "common/sync/stop_wait.h"

#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

absl::Status WaitUnlessStopped(absl::Duration time, const std::stop_token& stop) {
  const Clock& clock = Clock::Real();
  const absl::Time end = clock.Now() + time;
  Mutex mutex;
  CondVar changed;
  const std::stop_callback wake(stop, [&] {
    MutexLock lock(&mutex);
    changed.NotifyAll();
  });
  MutexLock lock(&mutex);
  while (!stop.stop_requested()) {
    const absl::Duration left = end - clock.Now();
    if (left <= absl::ZeroDuration()) {
      return absl::OkStatus();
    }
    changed.WaitWithTimeout(&mutex, left);
  }
  return absl::CancelledError("stopped");
}

}  // namespace shoal

#include "expert_node/drill/slowdown.h"

#include <algorithm>

namespace shoal {

void Slowdown::Begin(int64_t factor, absl::Duration duration) {
  MutexLock lock(&mutex_);
  factor_ = factor;
  end_ = clock_.Now() + duration;
  ++begun_;
  changed_.NotifyAll();
}

void Slowdown::End() { Begin(1, absl::ZeroDuration()); }

absl::Duration Slowdown::Rest(absl::Duration took) const {
  MutexLock lock(&mutex_);
  return RestLocked(took);
}

absl::Duration Slowdown::RestLocked(absl::Duration took) const {
  return std::max(absl::ZeroDuration(), std::min((factor_ - 1) * took, end_ - clock_.Now()));
}

void Slowdown::Wait(absl::Duration took, const std::stop_token& stop) {
  // Goes after the lock does: the callback takes it.
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  });
  MutexLock lock(&mutex_);
  const uint64_t begun = begun_;
  const absl::Time until = clock_.Now() + RestLocked(took);
  while (begun_ == begun && !stop.stop_requested() && clock_.Now() < until) {
    changed_.WaitWithTimeout(&mutex_, until - clock_.Now());
  }
}

}  // namespace shoal

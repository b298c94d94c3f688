// For how long, and by how much, a node is slower than it is.
#ifndef SHOAL_EXPERT_NODE_DRILL_SLOWDOWN_H_
#define SHOAL_EXPERT_NODE_DRILL_SLOWDOWN_H_

#include <cstdint>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe.
class Slowdown {
 public:
  // `clock` outlives this.
  explicit Slowdown(const Clock& clock) : clock_(clock) {}

  // From now on, for `duration`, what is done takes `factor` times its time. Replaces what goes on.
  void Begin(int64_t factor, absl::Duration duration);
  void End();

  // What work that took `took` has to wait yet; not beyond the end of the slowdown. Zero where
  // there is none.
  absl::Duration Rest(absl::Duration took) const;
  // Waits so long; not any longer once the slowdown is ended or replaced, or `stop` is requested.
  void Wait(absl::Duration took, const std::stop_token& stop);

 private:
  absl::Duration RestLocked(absl::Duration took) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t factor_ ABSL_GUARDED_BY(mutex_) = 1;
  absl::Time end_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  uint64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;  // slowdowns begun or ended so far
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_DRILL_SLOWDOWN_H_

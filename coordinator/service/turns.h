// Whose turn it is to compute, where several answers share one machine.
#ifndef SHOAL_COORDINATOR_SERVICE_TURNS_H_
#define SHOAL_COORDINATOR_SERVICE_TURNS_H_

#include <deque>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe. One thread has the turn at a time; those that wait get it in the order in which they came.
// With nobody waiting, Pass is one lock.
class Turns {
 public:
  // Waits for the turn. False, without it, where `stop` comes first.
  bool Take(const std::stop_token& stop);
  // Ends the turn. REQUIRES: the caller has it.
  void Leave();
  // Leave and Take, where others wait; else nothing. REQUIRES: the caller has the turn.
  bool Pass(const std::stop_token& stop);

  // Threads in line, for tests.
  int num_waiting();

 private:
  struct Waiter {
    bool has_turn = false;
    CondVar changed;
  };
  void Wake(Waiter& waiter);
  void HandOver() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool WaitInLine(Waiter& waiter, const std::stop_token& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  bool taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Waiter*> line_ ABSL_GUARDED_BY(mutex_);  // on the stacks of those that wait
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_TURNS_H_

// Which calls are computed now, and which wait in line.
#ifndef SHOAL_COORDINATOR_SERVICE_SESSION_SCHEDULER_H_
#define SHOAL_COORDINATOR_SERVICE_SESSION_SCHEDULER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"

namespace shoal {

// Work that needs a session. Alive until one of: Submit refused it, Withdraw gave it back, Dropped, Ended.
class SessionJob {
 public:
  virtual ~SessionJob() = default;
  // Whose it is; empty where callers are not told apart. Never changes.
  virtual const std::string& caller() const = 0;
  // It waits, at this place from 1, or moved up to it. Called with the scheduler locked: takes no time, and
  // calls nothing of it.
  virtual void OnPlace(int64_t place) = 0;
  // Does the work with session number `session`, from 0, on a thread of the scheduler.
  virtual void Run(int session) = 0;
  // The last call: Run has returned and the session is free for others.
  virtual void Ended() = 0;
  // The last call: it will not run, because the server ends.
  virtual void Dropped(const absl::Status& why) = 0;
};

// Thread-safe. Has one thread for each session, and no other.
class SessionScheduler {
 public:
  struct Load {
    int64_t running = 0;
    int64_t waiting = 0;
    bool draining = false;
  };

  // `num_sessions` jobs run at a time (at least 1), `max_waiting` more wait. Of several sessions one is
  // always left by each caller for others: a reader that does not read may keep its own for long.
  // `clock` outlives it.
  SessionScheduler(int num_sessions, int64_t max_waiting, const Clock& clock);
  // REQUIRES: every job has ended or was withdrawn.
  ~SessionScheduler();
  SessionScheduler(const SessionScheduler&) = delete;
  SessionScheduler& operator=(const SessionScheduler&) = delete;

  // Runs the job, at once or when its turn in the line comes.
  //   CANCELLED           `stop` came already
  //   RESOURCE_EXHAUSTED  QUEUE_FULL, with a RetryInfo: when a place is expected to be free
  //   UNAVAILABLE         DRAINING
  absl::Status Submit(SessionJob& job, const std::stop_token& stop);
  // Takes a job out of the line; false where it is not in it (any more).
  bool Withdraw(SessionJob& job);

  // From now on jobs are refused, and those in line are dropped.
  void Drain();

  Load load();
  // When a place in the line is expected to be free, from how long jobs took.
  absl::Duration RetryDelay();

 private:
  struct Running {
    SessionJob* job = nullptr;  // null: the session is free
    absl::Time since;
  };
  void RunSession(int session);
  // The next job, marked as running; null where the threads should end.
  SessionJob* Next(int session);
  void TellPlaces() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first in line that may run now.
  std::deque<SessionJob*>::iterator FirstThatMayRun() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t NumRunning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration RetryDelayLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int64_t max_waiting_;
  const Clock& clock_;
  Mutex mutex_;
  CondVar submitted_;
  std::deque<SessionJob*> line_ ABSL_GUARDED_BY(mutex_);
  std::vector<Running> running_ ABSL_GUARDED_BY(mutex_);  // one a session
  absl::Duration mean_time_
      ABSL_GUARDED_BY(mutex_);  // of a job, the latest weigh most; 0: none yet
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> threads_;  // last: they use what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_SESSION_SCHEDULER_H_

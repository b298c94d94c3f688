// Calls of the backend: a bounded number at a time, in the order in which they came.
#ifndef SHOAL_EXPERT_NODE_SERVICE_WORK_QUEUE_H_
#define SHOAL_EXPERT_NODE_SERVICE_WORK_QUEUE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe. Jobs run on its own threads; one at a time may run on the caller's instead, where a
// thread would be idle: waking that one costs a short job more than it saves.
class WorkQueue {
 public:
  // At most `num_threads` jobs at a time, those on callers' threads included (at least 1).
  explicit WorkQueue(int num_threads);
  // Runs what was submitted, then stops the threads.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // True where the caller does its job itself now, and calls EndHere after it. False where it
  // would have to wait, or another caller is at it: then it submits.
  bool TryBeginHere();
  void EndHere();

  // `owner` is a name for Withdraw, and is not looked at.
  void Submit(const void* owner, std::function<void()> job);
  // Drops the jobs of `owner` that have not begun; returns how many.
  size_t Withdraw(const void* owner);

 private:
  struct Job {
    const void* owner = nullptr;
    std::function<void()> run;
  };
  void Run();
  bool CanBegin() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !jobs_.empty() && running_ < limit_;
  }

  const int limit_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  bool caller_runs_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_WORK_QUEUE_H_

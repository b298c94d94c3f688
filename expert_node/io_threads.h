// Threads that wait for the disk, so that those that compute do not.
#ifndef SHOAL_EXPERT_NODE_IO_THREADS_H_
#define SHOAL_EXPERT_NODE_IO_THREADS_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe. Runs jobs in the order in which they came, as many at a time as there are threads.
// The queue has no bound of its own: a call queues at most one job for each expert of a layer, and
// waits for or withdraws all of them before it returns, so the number of calls at a time bounds it.
class IoThreads {
 public:
  // Starts `num_threads` threads (at least 1).
  explicit IoThreads(int num_threads);
  // Runs what was submitted, then stops the threads.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

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

  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_IO_THREADS_H_

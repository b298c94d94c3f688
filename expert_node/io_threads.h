// Threads that wait for the disk, so that those that compute do not.
#ifndef SHOAL_EXPERT_NODE_IO_THREADS_H_
#define SHOAL_EXPERT_NODE_IO_THREADS_H_

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/sync/mutex.h"

namespace shoal {

// Thread-safe. Runs jobs in the order in which they came, as many at a time as there are threads.
class IoThreads {
 public:
  // Starts `num_threads` threads (at least 1).
  explicit IoThreads(int num_threads);
  // Runs what was submitted, then stops the threads.
  ~IoThreads();
  IoThreads(const IoThreads&) = delete;
  IoThreads& operator=(const IoThreads&) = delete;

  void Submit(std::function<void()> job);

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_IO_THREADS_H_

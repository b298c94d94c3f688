#include "expert_node/io_threads.h"

#include <algorithm>
#include <utility>

namespace shoal {

IoThreads::IoThreads(int num_threads) {
  for (int i = 0; i < std::max(num_threads, 1); ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

IoThreads::~IoThreads() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void IoThreads::Submit(const void* owner, std::function<void()> job) {
  MutexLock lock(&mutex_);
  jobs_.push_back({owner, std::move(job)});
  changed_.NotifyOne();
}

size_t IoThreads::Withdraw(const void* owner) {
  MutexLock lock(&mutex_);
  return std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; });
}

void IoThreads::Run() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mutex_);
      while (jobs_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      if (jobs_.empty()) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.run();
  }
}

}  // namespace shoal

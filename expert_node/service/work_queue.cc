#include "expert_node/service/work_queue.h"

#include <algorithm>
#include <utility>

namespace shoal {

WorkQueue::WorkQueue(int num_threads) : limit_(std::max(num_threads, 1)) {
  for (int i = 0; i < limit_; ++i) {
    threads_.emplace_back([this] { Run(); });
  }
}

WorkQueue::~WorkQueue() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

bool WorkQueue::TryBeginHere() {
  MutexLock lock(&mutex_);
  if (caller_runs_ || !jobs_.empty() || running_ >= limit_) {
    return false;
  }
  caller_runs_ = true;
  ++running_;
  return true;
}

void WorkQueue::EndHere() {
  MutexLock lock(&mutex_);
  caller_runs_ = false;
  --running_;
  if (CanBegin()) {
    changed_.NotifyOne();
  }
}

void WorkQueue::Submit(const void* owner, std::function<void()> job) {
  MutexLock lock(&mutex_);
  jobs_.push_back({owner, std::move(job)});
  if (CanBegin()) {
    changed_.NotifyOne();
  }
}

size_t WorkQueue::Withdraw(const void* owner) {
  MutexLock lock(&mutex_);
  return std::erase_if(jobs_, [owner](const Job& job) { return job.owner == owner; });
}

void WorkQueue::Run() {
  while (true) {
    Job job;
    {
      MutexLock lock(&mutex_);
      while (!CanBegin() && !(stopping_ && jobs_.empty())) {
        changed_.Wait(&mutex_);
      }
      if (jobs_.empty()) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
      ++running_;
    }
    job.run();
    MutexLock lock(&mutex_);
    --running_;
    if (CanBegin()) {
      changed_.NotifyOne();
    }
  }
}

}  // namespace shoal

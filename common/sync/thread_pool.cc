#include "common/sync/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <fstream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/sync/cgroup.h"
#include "common/sync/mutex.h"
#include "common/sync/stealing_ranges.h"

namespace shoal {
namespace {

// One ParallelFor call. Lives on the caller's stack; threads may touch it only between taking a
// worker index and giving it back, both under the pool's mutex.
struct Loop {
  Loop(const std::function<void(int64_t, int)>& the_task, int64_t num_tasks, int num_workers)
      : task(the_task), tasks(num_tasks, num_workers) {}

  const std::function<void(int64_t, int)>& task;
  StealingRanges tasks;
  int workers_started = 1;  // the caller; guarded by the pool's mutex
  int workers_running = 1;  // guarded by the pool's mutex
  CondVar finished;

  void Run(int worker) {
    for (int64_t i = tasks.Take(worker); i >= 0; i = tasks.Take(worker)) {
      task(i, worker);
    }
  }
};

// What fails is a CPU that went away since the list was checked: the thread then goes where the process may.
void PinThread(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

struct ThreadPool::Impl {
  int num_threads = 1;
  Mutex mutex;
  CondVar work_arrived;
  std::deque<Loop*> loops ABSL_GUARDED_BY(mutex);  // loops that can still use a thread
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;

  void WorkerMain() {
    mutex.Lock();
    for (;;) {
      while (!stopping && loops.empty()) {
        work_arrived.Wait(&mutex);
      }
      if (stopping) {
        break;
      }
      Loop* loop = loops.front();
      const int worker = loop->workers_started++;
      loop->workers_running++;
      // Enough threads, or nothing left to take: the next free thread looks at the next loop.
      if (loop->workers_started >= num_threads || loop->tasks.empty()) {
        loops.pop_front();
      }
      mutex.Unlock();
      loop->Run(worker);
      mutex.Lock();
      Leave(loop);
    }
    mutex.Unlock();
  }

  // Called by each worker of `loop` when it found no more tasks.
  void Leave(Loop* loop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    loops.erase(std::remove(loops.begin(), loops.end(), loop), loops.end());
    if (--loop->workers_running == 0) {
      loop->finished.NotifyAll();
    }
  }
};

ThreadPool::ThreadPool(int num_threads, std::vector<int> cpus) : impl_(std::make_unique<Impl>()) {
  impl_->num_threads = std::max(1, num_threads);
  for (int i = 1; i < impl_->num_threads; ++i) {
    std::thread& thread = impl_->threads.emplace_back([impl = impl_.get()] { impl->WorkerMain(); });
    if (!cpus.empty()) {
      PinThread(thread, cpus[static_cast<size_t>(i) % cpus.size()]);
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(&impl_->mutex);
    impl_->stopping = true;
    impl_->work_arrived.NotifyAll();
  }
  for (std::thread& thread : impl_->threads) {
    thread.join();
  }
}

int ThreadPool::num_threads() const { return impl_->num_threads; }

void ThreadPool::ParallelFor(int64_t num_tasks,
                             const std::function<void(int64_t task, int worker)>& task) {
  if (num_tasks <= 0) {
    return;
  }
  if (impl_->num_threads == 1 || num_tasks == 1) {
    for (int64_t i = 0; i < num_tasks; ++i) {
      task(i, 0);
    }
    return;
  }
  Loop loop(task, num_tasks, impl_->num_threads);
  {
    MutexLock lock(&impl_->mutex);
    impl_->loops.push_back(&loop);
    impl_->work_arrived.NotifyAll();
  }
  loop.Run(0);
  MutexLock lock(&impl_->mutex);
  impl_->Leave(&loop);
  while (loop.workers_running > 0) {
    loop.finished.Wait(&impl_->mutex);
  }
}

namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// CPUs that a cgroup's directory allows, version 2: "quota period", or "max period".
double QuotaV2(const std::string& directory) {
  std::ifstream file(absl::StrCat(directory, "/cpu.max"));
  std::string quota_text;
  double quota = 0;
  double period = 0;
  const bool has_quota = file >> quota_text >> period && absl::SimpleAtod(quota_text, &quota) &&
                         quota > 0 && period > 0;
  return has_quota ? quota / period : kNoQuota;
}

// The same, version 1: a file each, and a quota of -1 for none.
double QuotaV1(const std::string& directory) {
  std::ifstream quota_file(absl::StrCat(directory, "/cpu.cfs_quota_us"));
  std::ifstream period_file(absl::StrCat(directory, "/cpu.cfs_period_us"));
  double quota = 0;
  double period = 0;
  const bool has_quota = quota_file >> quota && period_file >> period && quota > 0 && period > 0;
  return has_quota ? quota / period : kNoQuota;
}

double CpuQuota(const std::string& proc_root, const std::string& cgroup_root) {
  double quota = kNoQuota;
  for (const std::string& directory : CgroupDirectories(proc_root, cgroup_root, "")) {
    quota = std::min(quota, QuotaV2(directory));
  }
  const std::string v1_root = absl::StrCat(cgroup_root, "/cpu");
  for (const std::string& directory : CgroupDirectories(proc_root, v1_root, "cpu")) {
    quota = std::min(quota, QuotaV1(directory));
  }
  return quota;
}

}  // namespace

int UsableCpus(const std::string& proc_root, const std::string& cgroup_root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    cpus = std::max(1, CPU_COUNT(&set));
  }
  const double quota = std::ceil(CpuQuota(proc_root, cgroup_root));
  return quota < cpus ? std::max(1, static_cast<int>(quota)) : cpus;
}

}  // namespace shoal

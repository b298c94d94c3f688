// A fixed set of threads that run loops of independent tasks. Everything that computes shares one
// pool, so that the machine is never oversubscribed.
#ifndef SHOAL_COMMON_SYNC_THREAD_POOL_H_
#define SHOAL_COMMON_SYNC_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace shoal {

// Thread-safe: loops from several callers may overlap and share the threads.
class ThreadPool {
 public:
  // Runs on `num_threads` threads in all, the calling thread of ParallelFor included; 1 starts no
  // thread. Values below 1 count as 1. With `cpus` (cpu_list.h), which this process may use, each thread that is started
  // stays on one of them, the second and on in order; callers are where their own affinity says.
  explicit ThreadPool(int num_threads, std::vector<int> cpus = {});
  // Waits for running loops.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls task(i, worker) once for every i in [0, num_tasks) and returns when all have returned.
  // `worker` is in [0, num_threads()) and no two tasks that run at the same time in one call share
  // it, so it can index scratch memory of the call. Every worker begins with a range of neighbouring tasks, and takes half
  // of what another has left when its own are done, so that a slow core holds up at most one task; nothing may
  // depend on which thread runs one, or in which order. A task may not call ParallelFor on the same pool.
  void ParallelFor(int64_t num_tasks, const std::function<void(int64_t task, int worker)>& task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Number of CPUs this process may use: the scheduler affinity mask, cut by the cgroup (v1 or v2)
// CPU quota of its own group and of every group above, at least 1. The arguments are for tests.
int UsableCpus(const std::string& proc_root = "/proc",
               const std::string& cgroup_root = "/sys/fs/cgroup");

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_THREAD_POOL_H_

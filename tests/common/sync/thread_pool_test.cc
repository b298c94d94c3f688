#include "common/sync/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/sync/cpu_list.h"
#include "common/sync/mutex.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(ThreadPoolTest, RunsEveryTaskExactlyOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    pool.ParallelFor(count, [&](int64_t task, int) { runs[static_cast<size_t>(task)]++; });
    for (const auto& n : runs) {
      EXPECT_EQ(n.load(), 1);
    }
  }
}

TEST_P(ThreadPoolTest, NoTwoTasksShareAWorkerAtTheSameTime) {
  ThreadPool pool(GetParam());
  std::vector<std::atomic<int>> busy(static_cast<size_t>(pool.num_threads()));
  std::atomic<bool> clash{false};
  pool.ParallelFor(2000, [&](int64_t, int worker) {
    ASSERT_LT(worker, pool.num_threads());
    if (busy[static_cast<size_t>(worker)].fetch_add(1) != 0) {
      clash = true;
    }
    std::this_thread::yield();
    busy[static_cast<size_t>(worker)].fetch_sub(1);
  });
  EXPECT_FALSE(clash);
}

TEST_P(ThreadPoolTest, LoopsOfSeveralCallersOverlap) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pool.ParallelFor(20, [&](int64_t task, int) { sum += task; });
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(sum.load(), 4 * 50 * 190);
}

// The tasks that a slow worker has not begun are done by others: whichever is begun first waits for all the rest.
TEST(ThreadPoolStealingTest, ASlowWorkerHoldsUpOneTask) {
  constexpr int64_t kTasks = 100;
  ThreadPool pool(3);
  Mutex mutex;
  CondVar changed;
  int64_t done = 0;
  bool slow_began = false;
  pool.ParallelFor(kTasks, [&](int64_t, int) {
    MutexLock lock(&mutex);
    if (!slow_began) {
      slow_began = true;
      const absl::Time deadline = absl::Now() + absl::Seconds(60);
      while (done < kTasks - 1 && absl::Now() < deadline) {
        changed.WaitWithTimeout(&mutex, absl::Seconds(1));
      }
      EXPECT_EQ(done, kTasks - 1) << "tasks that nobody took over";
    }
    ++done;
    changed.NotifyAll();
  });
  EXPECT_EQ(done, kTasks);
}

TEST(ThreadPoolStealingTest, ThreadsStayOnTheirCpus) {
  const std::vector<int> cpus = {AllowedCpus().back()};
  ThreadPool pool(2, cpus);
  Mutex mutex;
  CondVar changed;
  std::vector<std::vector<int>> allowed(2);
  // Both tasks at once, so that both threads are there.
  pool.ParallelFor(2, [&](int64_t, int worker) {
    MutexLock lock(&mutex);
    allowed[static_cast<size_t>(worker)] = AllowedCpus();
    changed.NotifyAll();
    while (allowed[0].empty() || allowed[1].empty()) {
      changed.Wait(&mutex);
    }
  });
  EXPECT_EQ(allowed[0], AllowedCpus()) << "the caller's own";
  EXPECT_EQ(allowed[1], cpus);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 5));

TEST(ThreadPoolSizeTest, ValuesBelowOneCountAsOne) {
  EXPECT_EQ(ThreadPool(0).num_threads(), 1);
  EXPECT_EQ(ThreadPool(-3).num_threads(), 1);
  EXPECT_GE(UsableCpus(), 1);
}

// A process in the group /a/b, whose files the test writes.
class UsableCpusTest : public ::testing::Test {
 protected:
  UsableCpusTest() { Write("proc/self/cgroup", "4:cpu,cpuacct:/c\n0::/a/b\n"); }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full(dir_ / path);
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  int Usable() const { return UsableCpus(dir_ / "proc", dir_ / "cgroup"); }

  testing::TempDir dir_;
};

TEST_F(UsableCpusTest, AQuotaOfTheOwnGroupOrOfAnyAboveBinds) {
  const int all = Usable();  // by the affinity mask alone
  if (all < 2) {
    GTEST_SKIP() << "one CPU cannot be cut";
  }
  for (const char* file : {"cgroup/a/b/cpu.max", "cgroup/a/cpu.max", "cgroup/cpu.max"}) {
    Write(file, "100000 100000\n");
    EXPECT_EQ(Usable(), 1) << file;
    Write(file, "110000 100000\n");
    EXPECT_EQ(Usable(), 2) << file;
    Write(file, "1000 100000\n");
    EXPECT_EQ(Usable(), 1) << file;
    Write(file, "max 100000\n");
    EXPECT_EQ(Usable(), all) << file;
    Write(file, "junk\n");
    EXPECT_EQ(Usable(), all) << file;
  }
  for (const char* directory : {"cgroup/cpu/c/", "cgroup/cpu/"}) {
    Write(std::string(directory) + "cpu.cfs_period_us", "100000\n");
    Write(std::string(directory) + "cpu.cfs_quota_us", "50000\n");
    EXPECT_EQ(Usable(), 1) << directory;
    Write(std::string(directory) + "cpu.cfs_quota_us", "-1\n");
    EXPECT_EQ(Usable(), all) << directory;
  }
}

}  // namespace
}  // namespace shoal

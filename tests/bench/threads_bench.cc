// What a loop over the pool of threads costs beside its tasks.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "common/sync/thread_pool.h"

namespace shoal {
namespace {

// Tasks of `work` additions each, on two threads.
void BM_ParallelFor(benchmark::State& state) {
  ThreadPool pool(2);
  for (auto _ : state) {
    pool.ParallelFor(state.range(0), [&](int64_t task, int) {
      int64_t sum = task;
      for (int64_t i = 0; i < state.range(1); ++i) {
        benchmark::DoNotOptimize(sum += i);
      }
    });
  }
}
BENCHMARK(BM_ParallelFor)
    ->ArgNames({"tasks", "work"})
    ->Args({2, 1})
    ->Args({64, 1})
    ->Args({1024, 1})
    ->Args({64, 10000})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shoal

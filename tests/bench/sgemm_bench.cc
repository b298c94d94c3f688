// What a prefill would cost with OpenBLAS on dequantized experts in f32: the baseline of BM_ApplyTcqUnitToRows of
// kernels_bench, in the same count, weights a second for every row. One thread. Built where OpenBLAS is installed
// (libopenblas-dev); interleave the two by running one after the other several times.
#include <benchmark/benchmark.h>
#include <cblas.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace {

constexpr int kHiddenSize = 2304;
constexpr int kUnitWidth = 128;

// y [rows, outputs] = x [rows, inputs] * w [outputs, inputs]^T
void Multiply(int rows, int outputs, int inputs, const std::vector<float>& x,
              const std::vector<float>& w, std::vector<float>& y) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inputs, 1.0F, x.data(),
              inputs, w.data(), inputs, 0.0F, y.data(), outputs);
}

// The two products of a unit: gate and up together, and down. `units` of them, so that weights come from memory
// where a prefill finds them.
void BM_SgemmUnit(benchmark::State& state) {
  openblas_set_num_threads(1);
  const auto rows = static_cast<int>(state.range(0));
  const auto units = static_cast<size_t>(state.range(1));
  const auto size = [](int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); };
  const std::vector<std::vector<float>> gate_up(
      units, std::vector<float>(size(2 * kUnitWidth, kHiddenSize), 0.01F));
  const std::vector<std::vector<float>> down(
      units, std::vector<float>(size(kHiddenSize, kUnitWidth), 0.01F));
  const std::vector<float> x(size(rows, kHiddenSize), 0.5F);
  const std::vector<float> activated(size(rows, kUnitWidth), 0.5F);
  std::vector<float> sums(size(rows, 2 * kUnitWidth));
  std::vector<float> out(size(rows, kHiddenSize));
  size_t next = 0;
  for (auto _ : state) {
    Multiply(rows, 2 * kUnitWidth, kHiddenSize, x, gate_up[next], sums);
    Multiply(rows, kHiddenSize, kUnitWidth, activated, down[next], out);
    benchmark::DoNotOptimize(sums.data());
    benchmark::DoNotOptimize(out.data());
    next = next + 1 == units ? 0 : next + 1;
  }
  state.counters["weights"] =
      benchmark::Counter(static_cast<double>(3 * size(kHiddenSize, kUnitWidth)) * rows,
                         benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(BM_SgemmUnit)
    ->ArgNames({"rows", "units"})
    ->ArgsProduct({{1, 16, 64, 256}, {8}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace

// Kernels beside the floors they run into: bytes a second to compare with BM_ReadMemory, weights a
// second for the rest. One thread; the sizes are Kimi-Linear's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "common/container/unit_layout.h"
#include "kernels/delta_attention.h"
#include "kernels/expert_apply.h"
#include "kernels/expert_apply_rows.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/fixed_point.h"
#include "kernels/input_rotation.h"
#include "kernels/kernel_target.h"
#include "kernels/latent_attention.h"
#include "kernels/math.h"
#include "kernels/matrix.h"
#include "kernels/matvec.h"
#include "kernels/rvq_encode.h"
#include "kernels/rvq_kernels.h"
#include "kernels/tcq_encode.h"
#include "kernels/tcq_kernels.h"
#include "tests/bench/read_memory.h"

namespace shoal {
namespace {

constexpr int64_t kHiddenSize = 2304;
constexpr int64_t kUnitWidth = 128;

std::vector<float> Gaussian(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

std::vector<uint8_t> RandomBytes(int64_t count) {
  std::mt19937 random(3);
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& byte : bytes) {
    byte = static_cast<uint8_t>(random());
  }
  return bytes;
}

void CountBytes(benchmark::State& state, int64_t bytes) {
  state.SetBytesProcessed(state.iterations() * bytes);
}
void CountWeights(benchmark::State& state, int64_t weights) {
  state.counters["weights"] = benchmark::Counter(static_cast<double>(weights),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

// The memory bandwidth of one core, and of two together: a sum over more than the caches hold, of which every thread
// reads its part.
void BM_ReadMemory(benchmark::State& state) {
  const std::vector<uint64_t> data((size_t{1} << 26) / static_cast<size_t>(state.threads()), 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(SumOfWords(data));
  }
  CountBytes(state, static_cast<int64_t>(data.size() * sizeof(uint64_t)));
}
BENCHMARK(BM_ReadMemory)->Threads(1)->Threads(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// A matrix of one value, and rows of activations to multiply it with.
struct RandomProduct {
  RandomProduct(TrunkType type, int64_t rows, int64_t num_x)
      : values(static_cast<size_t>(rows * RowValueBytes(type, kHiddenSize)), 0x11),
        scales(static_cast<size_t>(rows * ScalesPerRow(type, kHiddenSize)), FloatToHalf(0.01F)),
        w{type, rows, kHiddenSize, values.data(), scales.data()},
        x(Gaussian(num_x * kHiddenSize, 1)),
        storage(static_cast<size_t>(num_x * TrunkRowBytes(kHiddenSize))),
        out(static_cast<size_t>(num_x * rows)) {
    for (int64_t r = 0; r < num_x; ++r) {
      x_rows.push_back(QuantizeTrunkRow(
          std::span(x).subspan(static_cast<size_t>(r * kHiddenSize), kHiddenSize),
          std::span(storage).subspan(static_cast<size_t>(r * TrunkRowBytes(kHiddenSize)))));
    }
  }
  void Run(benchmark::State& state) {
    const auto num_x = static_cast<int64_t>(x_rows.size());
    for (auto _ : state) {
      MatMul(w, {num_x, x.data(), x_rows.data()}, 0, w.rows, out.data(), w.rows);
      benchmark::DoNotOptimize(out.data());
    }
    CountBytes(state, static_cast<int64_t>(values.size() + scales.size() * 2));
    CountWeights(state, num_x * w.rows * kHiddenSize);
  }
  std::vector<uint8_t> values;
  std::vector<uint16_t> scales;
  Matrix w;
  std::vector<float> x;
  std::vector<std::byte> storage;
  std::vector<TrunkRow> x_rows;
  std::vector<float> out;
};

// One row through a matrix that is larger than the caches, as in decode, and through one that is not; a thread has its
// part of the rows.
void BM_MatMul(benchmark::State& state) {
  RandomProduct(static_cast<TrunkType>(state.range(0)), state.range(1) / state.threads(), 1)
      .Run(state);
}
void ForTypes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"type", "rows"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const TrunkType type : {TrunkType::kF32, TrunkType::kBF16, TrunkType::kQ8, TrunkType::kQ4}) {
    benchmark->Args({static_cast<int>(type), 64});
    benchmark->Args({static_cast<int>(type), 65536});
  }
}
BENCHMARK(BM_MatMul)->Apply(ForTypes);
BENCHMARK(BM_MatMul)
    ->ArgNames({"type", "rows"})
    ->Args({static_cast<int>(TrunkType::kQ8), 65536})
    ->Args({static_cast<int>(TrunkType::kQ4), 65536})
    ->Threads(2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

// Rows of a prompt together.
void BM_MatMulRows(benchmark::State& state) {
  RandomProduct(static_cast<TrunkType>(state.range(0)), 2048, state.range(1)).Run(state);
}
BENCHMARK(BM_MatMulRows)
    ->ArgNames({"type", "num_x"})
    ->ArgsProduct({{static_cast<int>(TrunkType::kBF16), static_cast<int>(TrunkType::kQ8)},
                   {64, 256}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Units of random codes with scale 0.01.
struct RandomUnits {
  static constexpr int64_t kGateUpBytes = kHiddenSize / 8 * 6 * kUnitWidth;
  static constexpr int64_t kUnitBytes = kGateUpBytes + kUnitWidth / 8 * 3 * kHiddenSize;

  explicit RandomUnits(int64_t count)
      : scales(static_cast<size_t>(2 * kUnitWidth + kHiddenSize), FloatToHalf(0.01F)),
        codes(RandomBytes(count * kUnitBytes + kSectionAlignment)),
        first(codes.data() + kSectionAlignment -
              reinterpret_cast<uintptr_t>(codes.data()) % kSectionAlignment) {
    for (int8_t& value : books.gate.values) {
      value = 3;
    }
    books.up = books.gate;
    books.down = books.gate;
  }
  // The codes of either codec take as many bytes.
  CodedUnit At(int64_t index) const {
    const uint8_t* unit = first + index * kUnitBytes;
    return {kHiddenSize,   kUnitWidth, scales.data(),      scales.data() + kUnitWidth,
            scales.data(), unit,       unit + kGateUpBytes};
  }
  std::vector<uint16_t> scales;
  std::vector<uint8_t> codes;
  const uint8_t* first;  // aligned as in a container
  LayerCodebooks books;
};

// For every instruction set that this CPU has; of units in the caches, and of more than they hold.
void ForTargets(benchmark::internal::Benchmark* benchmark) {
  constexpr int64_t kUnits = 1200;  // 400 MB
  benchmark->ArgNames({"target", "units", "fast"});
  for (const KernelTarget target : SupportedKernelTargets()) {
    for (const int fast : {0, 1}) {
      benchmark->Args({static_cast<int>(target), 1, fast});
      benchmark->Args({static_cast<int>(target), kUnits, fast});
    }
  }
}
KernelTarget TargetOf(benchmark::State& state) {
  const auto target = static_cast<KernelTarget>(state.range(0));
  state.SetLabel(std::string(KernelTargetName(target)));
  return target;
}
ExpertArithmetic ArithmeticOf(bool fast) {
  return fast ? ExpertArithmetic::kFast : ExpertArithmetic::kExact;
}

// One row through units of random codes: apply(unit) with one row prepared beforehand.
template <typename Apply>
void ApplyUnits(benchmark::State& state, const RandomUnits& units, Apply apply) {
  std::vector<std::byte> scratch(static_cast<size_t>(ExpertScratchBytes(kHiddenSize, kUnitWidth)));
  std::vector<int64_t> out(kHiddenSize);
  int64_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(apply(units.At(next), scratch, out));
    next = next + 1 == state.range(1) ? 0 : next + 1;
  }
  CountBytes(state, RandomUnits::kUnitBytes);
  CountWeights(state, 3 * kHiddenSize * kUnitWidth);
}

void BM_ApplyRvqUnit(benchmark::State& state) {
  const RvqKernels& kernels = RvqKernelsOf(TargetOf(state), ArithmeticOf(state.range(2) != 0));
  const RandomUnits units(state.range(1));
  const std::vector<float> x = Gaussian(kHiddenSize, 1);
  std::vector<int32_t> tables(static_cast<size_t>(RvqPreparedRowElements(kHiddenSize)));
  const RvqPreparedRow row = PrepareRvqRow(kernels, units.books, x, tables);
  ApplyUnits(state, units, [&](const CodedUnit& unit, auto& scratch, auto& out) {
    return ApplyRvqUnit(kernels, unit, units.books, row, 1e-6, scratch, out);
  });
}
BENCHMARK(BM_ApplyRvqUnit)->Apply(ForTargets)->Unit(benchmark::kMicrosecond);

void BM_ApplyTcqUnit(benchmark::State& state) {
  const TcqKernels& kernels = TcqKernelsOf(TargetOf(state), ArithmeticOf(state.range(2) != 0));
  const RandomUnits units(state.range(1));
  const ExpertRotations rotations = ExpertRotations::Of(kHiddenSize, kUnitWidth, 1);
  const std::vector<float> x = Gaussian(kHiddenSize, 1);
  std::vector<int32_t> words(static_cast<size_t>(TcqRowWords(kHiddenSize)));
  std::vector<std::byte> scratch_of_row(static_cast<size_t>(TcqRowScratchBytes(kHiddenSize)));
  const TcqPreparedRow row =
      PrepareTcqRow(rotations.input, kernels.planes, x, words, scratch_of_row);
  ApplyUnits(state, units, [&](const CodedUnit& unit, auto& scratch, auto& out) {
    return ApplyTcqUnit(kernels, unit, rotations.unit, row, 1e-6, scratch, out);
  });
}
BENCHMARK(BM_ApplyTcqUnit)->Apply(ForTargets)->Unit(benchmark::kMicrosecond);

// Many rows through units of random codes; weights a second count each weight once for every row.
void BM_ApplyTcqUnitToRows(benchmark::State& state) {
  const TcqKernels& kernels = TcqKernelsOf(TargetOf(state), ArithmeticOf(state.range(2) != 0));
  const int64_t num_rows = state.range(1);
  const RandomUnits units(8);
  const ExpertRotations rotations = ExpertRotations::Of(kHiddenSize, kUnitWidth, 1);
  const auto words_of_row = static_cast<size_t>(TcqRowWords(kHiddenSize));
  std::vector<int32_t> words(words_of_row * static_cast<size_t>(num_rows));
  std::vector<std::byte> scratch(static_cast<size_t>(
      std::max(ExpertRowsScratchBytes(kHiddenSize, kUnitWidth), TcqRowScratchBytes(kHiddenSize))));
  std::vector<WeightedRow> rows;
  for (int64_t r = 0; r < num_rows; ++r) {
    const std::span<int32_t> of_row(words.data() + rows.size() * words_of_row, words_of_row);
    const std::vector<float> x = Gaussian(kHiddenSize, static_cast<uint32_t>(r));
    rows.push_back({PrepareTcqRow(rotations.input, kernels.planes, x, of_row, scratch), 1e-6});
  }
  std::vector<int64_t> out(static_cast<size_t>(num_rows * kHiddenSize));
  int64_t next = 0;
  for (auto _ : state) {
    for (int64_t begin = 0; begin < num_rows; begin += kMostRowsTogether) {
      const auto count = static_cast<size_t>(std::min(kMostRowsTogether, num_rows - begin));
      ApplyTcqUnitToRows(kernels, units.At(next), rotations.unit,
                         std::span(rows).subspan(static_cast<size_t>(begin), count), scratch,
                         [&](size_t row, int64_t first, std::span<const double> terms) {
                           const auto at = (static_cast<size_t>(begin) + row) * kHiddenSize +
                                           static_cast<size_t>(first);
                           return AddFixedPoint(terms, std::span(out).subspan(at, terms.size()));
                         });
    }
    next = (next + 1) % 8;
  }
  CountWeights(state, 3 * kHiddenSize * kUnitWidth * num_rows);
}
BENCHMARK(BM_ApplyTcqUnitToRows)
    ->Apply([](benchmark::internal::Benchmark* benchmark) {
      benchmark->ArgNames({"target", "rows", "fast"});
      for (const KernelTarget target : SupportedKernelTargets()) {
        for (const int64_t rows : {1, 2, 4, 8, 16, 64, 256}) {
          benchmark->Args({static_cast<int>(target), rows, 0});
          benchmark->Args({static_cast<int>(target), rows, 1});
        }
      }
    })
    ->Unit(benchmark::kMicrosecond);

// Rotation, quantization and planes of one row; 7168 is Kimi K3's hidden size.
void BM_PrepareTcqRow(benchmark::State& state) {
  const InputRotation rotation(state.range(0), 1);
  const std::vector<float> x = Gaussian(state.range(0), 1);
  std::vector<int32_t> words(static_cast<size_t>(TcqRowWords(state.range(0))));
  std::vector<std::byte> scratch(static_cast<size_t>(TcqRowScratchBytes(state.range(0))));
  for (auto _ : state) {
    benchmark::DoNotOptimize(PrepareTcqRow(rotation, kExactPlanes, x, words, scratch));
  }
}
BENCHMARK(BM_PrepareTcqRow)
    ->ArgName("columns")
    ->Arg(kHiddenSize)
    ->Arg(7168)
    ->Unit(benchmark::kMicrosecond);

void BM_PrepareRvqRow(benchmark::State& state) {
  const RvqKernels& kernels = RvqKernelsOf(TargetOf(state), ArithmeticOf(state.range(1) != 0));
  const RandomUnits units(1);
  const std::vector<float> x = Gaussian(kHiddenSize, 1);
  std::vector<int32_t> tables(static_cast<size_t>(RvqPreparedRowElements(kHiddenSize)));
  for (auto _ : state) {
    benchmark::DoNotOptimize(PrepareRvqRow(kernels, units.books, x, tables));
  }
}
BENCHMARK(BM_PrepareRvqRow)
    ->ArgNames({"target", "fast"})
    ->ArgsProduct({benchmark::CreateDenseRange(
                       0, static_cast<int64_t>(SupportedKernelTargets().size()) - 1, 1),
                   {0, 1}})
    ->Unit(benchmark::kMicrosecond);

void BM_EncodeRow(benchmark::State& state) {
  const std::vector<float> sample = Gaussian(kRvqTrainVectors * 8, 5);
  RvqTrainOptions options;
  options.iterations = 1;
  float grid = 0;
  const RvqCodebook book = TrainRvqCodebook(sample, kRvqTrainVectors, options, &grid);
  const RvqEncoder encoder(book, grid, static_cast<int>(state.range(0)));
  const std::vector<float> row = Gaussian(kHiddenSize, 6);
  std::vector<uint32_t> codes(kHiddenSize / 8);
  for (auto _ : state) {
    benchmark::DoNotOptimize(encoder.EncodeRow(row, codes));
  }
  CountWeights(state, kHiddenSize);
}
BENCHMARK(BM_EncodeRow)->ArgName("beam")->Arg(1)->Arg(8)->Arg(16)->Unit(benchmark::kMillisecond);

// A unit's gate and up.
void BM_EncodeTcq(benchmark::State& state) {
  const TcqShape shape = TcqShapeOf(2 * kUnitWidth, kHiddenSize);
  const std::vector<float> weights = Gaussian(shape.rows * kHiddenSize, 6);
  std::vector<uint16_t> scales(static_cast<size_t>(shape.rows));
  std::vector<uint8_t> codes(static_cast<size_t>(shape.bytes()));
  for (auto _ : state) {
    EncodeTcq(shape, weights, kHiddenSize, scales, codes);
    benchmark::ClobberMemory();
  }
  CountWeights(state, shape.rows * kHiddenSize);
}
BENCHMARK(BM_EncodeTcq)->Unit(benchmark::kMillisecond);

// A step of heads whose states lie behind each other: one that stays in the caches, or more than they hold.
void BM_DeltaAttentionHead(benchmark::State& state) {
  constexpr int64_t kHeadDim = 128;
  constexpr int64_t kStateSize = kHeadDim * kHeadDim;
  const int64_t num_heads = state.range(0);
  const std::vector<float> q = Gaussian(kHeadDim, 1);
  const std::vector<float> decay(kHeadDim, 0.9F);
  const float beta = 0.01F;
  std::vector<float> states(static_cast<size_t>(num_heads * kStateSize), 0.01F);
  std::vector<float> out(kHeadDim);
  DeltaHeadArgs args;
  args.num_tokens = 1;
  args.head_dim = kHeadDim;
  args.stride = kHeadDim;
  args.q = args.k = args.v = q.data();
  args.decay = decay.data();
  args.beta = &beta;
  args.out = out.data();
  for (auto _ : state) {
    for (int64_t head = 0; head < num_heads; ++head) {
      args.state_out = states.data() + head * kStateSize;
      args.state_in = args.state_out;
      DeltaAttentionHead(args);
    }
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(states.size() * sizeof(float)));
}
BENCHMARK(BM_DeltaAttentionHead)
    ->ArgName("heads")
    ->Arg(1)
    ->Arg(2048)
    ->Unit(benchmark::kMicrosecond);

void BM_LatentAttention(benchmark::State& state) {
  LatentAttentionArgs args;
  args.latent_size = 512;
  args.shared_size = 64;
  args.num_positions = state.range(0);
  args.num_heads = state.range(1);
  args.scale = 0.07;
  const std::vector<float> query = Gaussian(576 * args.num_heads, 1);
  const std::vector<float> cache = Gaussian(576 * args.num_positions, 2);
  std::vector<float> out(static_cast<size_t>(512 * args.num_heads));
  args.query = query.data();
  args.cache = cache.data();
  args.out = out.data();
  for (auto _ : state) {
    LatentAttention(args);
    benchmark::ClobberMemory();
  }
  CountBytes(state, static_cast<int64_t>(cache.size() * sizeof(float)));
}
BENCHMARK(BM_LatentAttention)
    ->ArgNames({"positions", "heads"})
    ->ArgsProduct({{1024, 16384}, {1, kMostLatentHeads}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace shoal

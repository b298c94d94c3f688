// The expert engine on a small converted model: its arithmetic against plain double, and the bits
// that no split, thread count, cache size or order may change.
#include "expert_node/local_expert_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/partition.h"
#include "coordinator/convert/converter.h"
#include "coordinator/pool/shard.h"
#include "kernels/fixed_point.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

using ::shoal::testing::kHiddenSize;
using ::shoal::testing::kLayer;
using ::shoal::testing::kNumExperts;
using ::shoal::testing::kNumUnits;
using ::shoal::testing::kPerToken;
using ::shoal::testing::kWhole;
using ::shoal::testing::MakeBatch;
using ::shoal::testing::TestBatch;
using ::shoal::testing::Units;

constexpr int64_t kIntermediateSize = 20;

class LocalExpertBackendTest : public ::testing::TestWithParam<ExpertCodec> {
 protected:
  void SetUp() override {
    SmallCheckpoint().WriteTo(dir_ / "checkpoint");
    ConvertOptions options;
    options.experts = GetParam();
    SHOAL_ASSERT_OK(Convert(dir_ / "checkpoint", dir_ / "model", options, nullptr, {}));
    Reopen();
  }
  void Reopen() {
    auto container = Container::Open(dir_ / "model");
    ASSERT_THAT(container, testing::IsOk());
    container_ = *std::move(container);
  }

  std::unique_ptr<LocalExpertBackend> Backend(ThreadPool& pool, int64_t cache_records = 14,
                                              std::optional<ExpertSplits> splits = {}) {
    LocalExpertBackend::Options options;
    options.splits = std::move(splits);
    options.cache_records = cache_records;
    auto backend = LocalExpertBackend::Open(*container_, options, pool, Clock::Real());
    EXPECT_THAT(backend, testing::IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  std::unique_ptr<LocalExpertBackend> Holding(const std::vector<ExpertSlice>& slices) {
    std::vector<SliceSource> sources;
    for (const ExpertSlice& slice : slices) {
      sources.push_back(SliceOfContainer(*container_, slice));
    }
    LocalExpertBackend::Options options;
    options.cache_records = 14 * std::ssize(slices);
    auto model = ExpertModel::FromContainer(*container_);
    EXPECT_THAT(model, testing::IsOk());
    auto backend = LocalExpertBackend::Open(*std::move(model), std::move(sources), options, pool_,
                                            Clock::Real());
    EXPECT_THAT(backend, testing::IsOk());
    return backend.ok() ? *std::move(backend) : nullptr;
  }

  static std::vector<int64_t> Execute(ExpertBackend& backend, const TestBatch& batch,
                                      const std::vector<ExpertSlice>& slices) {
    std::vector<int64_t> out(batch.rows.size());
    EXPECT_THAT(backend.Execute(batch.View(), slices, {}, out), testing::IsOk());
    return out;
  }

  absl::Status ExecuteStatus(ExpertBackend& backend, const TestBatch& batch) {
    std::vector<int64_t> out(batch.rows.size());
    return backend.Execute(batch.View(), {&kWhole, 1}, {}, out);
  }

  TempDir dir_;
  std::unique_ptr<Container> container_;
  ThreadPool pool_{2};
};

INSTANTIATE_TEST_SUITE_P(Codecs, LocalExpertBackendTest,
                         ::testing::Values(ExpertCodec::kRvq3, ExpertCodec::kTcq3,
                                           ExpertCodec::kF32),
                         [](const auto& info) { return std::string(ExpertCodecName(info.param)); });

std::vector<float> ReadTensor(const Checkpoint& checkpoint, const std::string& name,
                              std::vector<uint64_t> shape) {
  auto info = checkpoint.Find(name, shape);
  EXPECT_THAT(info, testing::IsOk());
  std::vector<float> values(info->num_elements());
  EXPECT_THAT(checkpoint.ReadFloat(name, *info, values), testing::IsOk());
  return values;
}

// down (silu(gate x) * (up x)) in double.
std::vector<double> PlainExpert(const Checkpoint& checkpoint, const ModelConfig& config,
                                int64_t expert, std::span<const float> x) {
  const ExpertTensorNames names = ExpertTensors(config, kLayer, expert);
  const auto gate = ReadTensor(checkpoint, names.gate, {kIntermediateSize, kHiddenSize});
  const auto up = ReadTensor(checkpoint, names.up, {kIntermediateSize, kHiddenSize});
  const auto down = ReadTensor(checkpoint, names.down, {kHiddenSize, kIntermediateSize});
  std::vector<double> out(kHiddenSize);
  for (int64_t i = 0; i < kIntermediateSize; ++i) {
    double g = 0;
    double u = 0;
    for (int64_t j = 0; j < kHiddenSize; ++j) {
      g += double{gate[i * kHiddenSize + j]} * double{x[j]};
      u += double{up[i * kHiddenSize + j]} * double{x[j]};
    }
    const double activated = g / (1 + std::exp(-g)) * u;
    for (int64_t j = 0; j < kHiddenSize; ++j) {
      out[j] += double{down[j * kIntermediateSize + i]} * activated;
    }
  }
  return out;
}

TEST_P(LocalExpertBackendTest, EqualsPlainArithmeticOnTheContainersOwnWeights) {
  SHOAL_ASSERT_OK(Dequantize(dir_ / "model", dir_ / "weights", nullptr, {}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir_ / "weights"));
  const auto backend = Backend(pool_);
  const TestBatch batch = MakeBatch(5);
  const std::vector<int64_t> out = Execute(*backend, batch, {kWhole});
  double largest = 0;
  double worst = 0;
  for (int64_t row = 0; row < batch.num_rows; ++row) {
    std::vector<double> expected(kHiddenSize);
    for (int64_t slot = 0; slot < kPerToken; ++slot) {
      const size_t choice = static_cast<size_t>(row * kPerToken + slot);
      const auto part = PlainExpert(*checkpoint, container_->config(), batch.ids[choice],
                                    std::span(batch.rows).subspan(row * kHiddenSize, kHiddenSize));
      for (int64_t j = 0; j < kHiddenSize; ++j) {
        expected[j] += double{batch.weights[choice]} * part[j];
      }
    }
    for (int64_t j = 0; j < kHiddenSize; ++j) {
      const double actual = static_cast<double>(out[row * kHiddenSize + j]) / kFixedPointScale;
      worst = std::max(worst, std::fabs(actual - expected[j]));
      largest = std::max(largest, std::fabs(expected[j]));
    }
  }
  EXPECT_GT(largest, 1e-3);
  // Activations are rounded to 21 bits (rvq3, tcq3) or 24 (f32): 2^-20 of the largest, a few times.
  EXPECT_LT(worst / largest, 4e-6);
}

TEST_P(LocalExpertBackendTest, EverySplitOfTheUnitsAddsUpToTheSameBits) {
  const auto backend = Backend(pool_);
  const TestBatch batch = MakeBatch(5);
  const std::vector<int64_t> whole = Execute(*backend, batch, {kWhole});
  for (int64_t a = 0; a <= kNumUnits; ++a) {
    for (int64_t b = a; b <= kNumUnits; ++b) {
      std::vector<int64_t> sum(whole.size());
      if (b > a) {
        sum = Execute(*backend, batch, {Units(a, b)});
      }
      const std::vector<ExpertSlice> rest_slices = Uncovered(kWhole, {{Units(a, b)}});
      const std::vector<int64_t> rest = Execute(*backend, batch, rest_slices);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += rest[i];
      }
      EXPECT_EQ(sum, whole) << "[" << a << ", " << b << ")";
    }
  }
}

TEST_P(LocalExpertBackendTest, AddsToWhatIsThere) {
  const auto backend = Backend(pool_);
  const TestBatch batch = MakeBatch(2);
  const std::vector<int64_t> once = Execute(*backend, batch, {kWhole});
  std::vector<int64_t> twice = once;
  SHOAL_ASSERT_OK(backend->Execute(batch.View(), {&kWhole, 1}, {}, twice));
  for (size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(twice[i], 2 * once[i]);
  }
}

TEST_P(LocalExpertBackendTest, ThreadsCacheSizeAndBatchingChangeNoBit) {
  const TestBatch batch = MakeBatch(33);
  std::vector<int64_t> expected;
  for (const int threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    for (const int64_t cache_records : {3, 4, 14, 28}) {
      const auto backend = Backend(pool, cache_records);
      const std::vector<int64_t> out = Execute(*backend, batch, {kWhole});
      if (expected.empty()) {
        expected = out;
      }
      EXPECT_EQ(out, expected) << threads << " threads, " << cache_records << " records";
    }
  }
  // Row by row: the path of decode.
  const auto backend = Backend(pool_, 3);
  for (int64_t row = 0; row < batch.num_rows; ++row) {
    TestBatch one;
    one.num_rows = 1;
    one.rows.assign(batch.rows.begin() + row * kHiddenSize,
                    batch.rows.begin() + (row + 1) * kHiddenSize);
    one.ids.assign(batch.ids.begin() + row * kPerToken, batch.ids.begin() + (row + 1) * kPerToken);
    one.weights.assign(batch.weights.begin() + row * kPerToken,
                       batch.weights.begin() + (row + 1) * kPerToken);
    const std::vector<int64_t> out = Execute(*backend, one, {kWhole});
    EXPECT_TRUE(std::equal(out.begin(), out.end(), expected.begin() + row * kHiddenSize)) << row;
  }
}

TEST_P(LocalExpertBackendTest, TheSplitAmongThreadsChangesNoBit) {
  ThreadPool pool(3);
  for (const int64_t num_rows : {1, 2, 40}) {
    const TestBatch batch = MakeBatch(num_rows);
    std::vector<int64_t> expected;
    for (const ExpertSplit split : PossibleSplits(container_->manifest().unit_layout)) {
      const auto backend = Backend(pool, 14, ExpertSplits::Always(split));
      const std::vector<int64_t> out = Execute(*backend, batch, {kWhole});
      if (expected.empty()) {
        expected = out;
      }
      EXPECT_EQ(out, expected) << ExpertSplitName(split) << ", " << num_rows << " rows";
    }
  }
}

// More rows than are prepared at a time, on more threads than there are processors.
TEST_P(LocalExpertBackendTest, AThousandRowsGiveTheBitsOfEachAlone) {
  ThreadPool many(5);
  ThreadPool one(1);
  const auto together = Backend(many);
  const auto alone = Backend(one);
  const TestBatch batch = MakeBatch(1000);
  const std::vector<int64_t> out = Execute(*together, batch, {kWhole});
  std::vector<int64_t> expected;
  for (int64_t row = 0; row < batch.num_rows; ++row) {
    TestBatch single;
    single.num_rows = 1;
    const auto from = [row](const auto& all, int64_t size) {
      return std::vector(all.begin() + row * size, all.begin() + (row + 1) * size);
    };
    single.rows = from(batch.rows, kHiddenSize);
    single.ids = from(batch.ids, kPerToken);
    single.weights = from(batch.weights, kPerToken);
    const std::vector<int64_t> sums = Execute(*alone, single, {kWhole});
    expected.insert(expected.end(), sums.begin(), sums.end());
  }
  EXPECT_EQ(out, expected);
}

TEST_P(LocalExpertBackendTest, ReadsEveryMissedRecordOnceAndCountsHits) {
  const auto backend = Backend(pool_, 14);
  const TestBatch batch = MakeBatch(1);
  Execute(*backend, batch, {kWhole});
  Execute(*backend, batch, {kWhole});
  const std::vector<ExpertLayerStats> stats = backend->Stats();
  ASSERT_EQ(stats.size(), 2);
  EXPECT_EQ(stats[0].layer, 1);
  EXPECT_EQ(stats[0].expert_misses, 0);
  EXPECT_EQ(stats[1].layer, kLayer);
  EXPECT_EQ(stats[1].expert_misses, kPerToken);
  EXPECT_EQ(stats[1].expert_hits, kPerToken);
  EXPECT_EQ(stats[1].expert_reads, kPerToken);
  EXPECT_EQ(stats[1].expert_bytes, kPerToken * container_->manifest().unit_layout.record_bytes);
  EXPECT_GT(stats[1].compute_time, absl::ZeroDuration());
}

TEST_P(LocalExpertBackendTest, ReadsOnlyTheUnitsThatAreAskedFor) {
  const UnitLayout& layout = container_->manifest().unit_layout;
  const auto bytes_of = [&layout](int64_t begin, int64_t end) {
    const uint64_t first = static_cast<uint64_t>(begin) * layout.unit_bytes;
    const uint64_t last = static_cast<uint64_t>(end) * layout.unit_bytes;
    return (last + 4095) / 4096 * 4096 - first / 4096 * 4096;
  };
  struct Case {
    std::vector<ExpertSlice> asked;
    int64_t reads;  // of each expert
    uint64_t bytes;
  };
  const std::vector<Case> cases = {
      {{Units(0, 1)}, 1, bytes_of(0, 1)},
      {{Units(1, 3)}, 1, bytes_of(1, 3)},
      {{Units(2, 3), Units(0, 1)}, 2, bytes_of(0, 1) + bytes_of(2, 3)},
      // Side by side, in whatever order: one read.
      {{Units(2, 3), Units(0, 1), Units(1, 2)}, 1, bytes_of(0, 3)},
  };
  const TestBatch batch = MakeBatch(1);
  for (const Case& c : cases) {
    const auto backend = Backend(pool_, 14);
    Execute(*backend, batch, c.asked);
    Execute(*backend, batch, c.asked);
    const ExpertLayerStats stats = backend->Stats()[1];
    EXPECT_EQ(stats.expert_reads, c.reads * kPerToken);
    EXPECT_EQ(stats.expert_hits, c.reads * kPerToken);
    EXPECT_EQ(stats.expert_bytes, c.bytes * kPerToken);
  }
}

TEST_P(LocalExpertBackendTest, CallsThatOverlapDoNotDisturbEachOther) {
  // Three slots for four callers of three experts each: they must take turns without a deadlock.
  const auto backend = Backend(pool_, kPerToken);
  const TestBatch batch = MakeBatch(7);
  const std::vector<int64_t> expected = Execute(*backend, batch, {kWhole});
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(Execute(*backend, batch, {kWhole}), expected);
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
}

TEST_P(LocalExpertBackendTest, AStopCancelsAndLeavesTheBackendUsable) {
  const auto backend = Backend(pool_, kPerToken);
  const TestBatch batch = MakeBatch(9);
  std::stop_source stop;
  stop.request_stop();
  std::vector<int64_t> out(batch.rows.size());
  EXPECT_THAT(backend->Execute(batch.View(), {&kWhole, 1}, stop.get_token(), out),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  const auto fresh = Backend(pool_, 14);
  EXPECT_EQ(Execute(*backend, batch, {kWhole}), Execute(*fresh, batch, {kWhole}));
}

TEST_P(LocalExpertBackendTest, NamesADamagedRecordAndStillServesTheOthers) {
  const auto backend = Backend(pool_, kPerToken);
  const std::string bank = container_->PathOf(BankFile(kLayer));
  const UnitLayout& layout = container_->manifest().unit_layout;
  {
    std::fstream file(bank, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(4 * layout.record_bytes + layout.unit_bytes + 200));
    file.put('\x5a');
  }
  TestBatch batch = MakeBatch(1);
  batch.ids = {0, 4, 8};
  EXPECT_THAT(
      ExecuteStatus(*backend, batch),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(bank), HasSubstr("layer 2"),
                                                  HasSubstr("expert 4"), HasSubstr("unit 1"))));
  batch.ids = {0, 5, 8};
  SHOAL_EXPECT_OK(ExecuteStatus(*backend, batch));
}

TEST_P(LocalExpertBackendTest, RefusesBatchesThatMakeNoSense) {
  const auto backend = Backend(pool_);
  const auto refuses = [&](auto change, absl::string_view message) {
    TestBatch batch = MakeBatch(2);
    change(batch);
    EXPECT_THAT(ExecuteStatus(*backend, batch),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(message))));
  };
  refuses([](TestBatch& b) { b.num_rows = 3; }, "batch of 3 rows");
  refuses([](TestBatch& b) { b.num_rows = -1; }, "batch of -1 rows");
  refuses([](TestBatch& b) { b.rows.pop_back(); }, "activations");
  refuses([](TestBatch& b) { b.weights.pop_back(); }, "weights");
  refuses([](TestBatch& b) { b.ids.push_back(0); }, "expert ids");
  refuses([](TestBatch& b) { b.ids[1] = 14; }, "expert 14 of 14");
  refuses([](TestBatch& b) { b.ids[1] = -1; }, "expert -1 of 14");
  refuses([](TestBatch& b) { b.rows[3] = std::nanf(""); }, "NaN or infinite");
  refuses([](TestBatch& b) { b.weights[3] = INFINITY; }, "NaN or infinite");
}

TEST_P(LocalExpertBackendTest, RefusesLayersAndRangesOutsideTheModel) {
  const auto backend = Backend(pool_);
  const TestBatch batch = MakeBatch(1);
  std::vector<int64_t> out(batch.rows.size());
  const auto execute = [&](std::vector<ExpertSlice> slices, int64_t layer) {
    ExpertBackend::Batch view = batch.View();
    view.layer = layer;
    return backend->Execute(view, slices, {}, out);
  };
  EXPECT_THAT(execute({kWhole}, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer 0 has no experts")));
  for (const ExpertSlice& bad : std::vector<ExpertSlice>{
           Units(0, 4), Units(-1, 2), Units(2, 1), {{0, 3}, {0, 15}}, {{0, 3}, {-1, 2}}}) {
    EXPECT_THAT(execute({bad}, kLayer),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("are not a part of")));
  }
  EXPECT_THAT(execute({Units(0, 2), Units(1, 3)}, kLayer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("are given twice")));
  SHOAL_EXPECT_OK(execute({}, kLayer));
}

// Slices of a container read only what they need, in one read an expert, and give the same bits
// however units and experts are dealt out.
TEST_P(LocalExpertBackendTest, HoldersOfSlicesAddUpToTheSameBits) {
  const TestBatch batch = MakeBatch(5);
  const std::vector<int64_t> whole = Execute(*Backend(pool_), batch, {kWhole});
  const std::vector<std::vector<ExpertSlice>> layouts = {
      {Units(0, 1), Units(1, 3)},
      {{{0, 3}, {0, 5}}, {{0, 3}, {5, 14}}},
      {{{0, 2}, {0, 9}}, {{2, 3}, {0, 9}}, {{0, 3}, {9, 14}}},
  };
  for (const std::vector<ExpertSlice>& layout : layouts) {
    const auto together = Holding(layout);
    EXPECT_EQ(Execute(*together, batch, {kWhole}), whole);
    std::vector<int64_t> sum(whole.size());
    for (const ExpertSlice& slice : layout) {
      const auto holder = Holding({slice});
      SHOAL_ASSERT_OK(holder->Execute(batch.View(), {&slice, 1}, {}, sum));
      const ExpertLayerStats stats = holder->Stats()[1];
      EXPECT_EQ(stats.expert_reads, stats.expert_misses);
    }
    EXPECT_EQ(sum, whole);
  }
}

// What nodes read from their own partitions is what the container has, however it was dealt out.
TEST_P(LocalExpertBackendTest, PartitionsAddUpToTheSameBits) {
  const TestBatch batch = MakeBatch(5);
  const std::vector<int64_t> whole = Execute(*Backend(pool_), batch, {kWhole});
  PoolPlan plan;
  plan.identity = container_->manifest().identity;
  plan.nodes = {{"one", "", {{{0, 2}, {0, 9}}, {{0, 3}, {9, 12}}}, {}},
                {"two", "", {{{2, 3}, {0, 9}}}, {{{0, 2}, {3, 5}}}},
                {"three", "", {{{0, 1}, {12, 14}}, {{1, 3}, {12, 14}}}, {}}};
  SHOAL_ASSERT_OK(Shard(*container_, plan, dir_ / "pool", {}, nullptr, {}));
  std::vector<int64_t> sum(whole.size());
  for (const PoolNode& node : plan.nodes) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto partition, Partition::Open(dir_ / "pool/" + node.name));
    std::vector<SliceSource> sources;
    for (size_t i = 0; i < partition->slices().size(); ++i) {
      sources.push_back(SliceOfPartition(*partition, i));
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(ExpertModel model, ExpertModel::FromPartition(*partition));
    LocalExpertBackend::Options options;
    options.cache_records = 2 * kNumExperts;
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto backend, LocalExpertBackend::Open(std::move(model), std::move(sources), options,
                                                     pool_, Clock::Real()));
    SHOAL_ASSERT_OK(backend->Execute(batch.View(), node.slices, {}, sum));
    const ExpertLayerStats stats = backend->Stats()[1];
    EXPECT_GT(stats.expert_reads, 0);
    EXPECT_EQ(stats.expert_reads, stats.expert_misses);
    EXPECT_EQ(stats.expert_bytes % kRecordAlignment, 0);
  }
  EXPECT_EQ(sum, whole);
}

TEST_P(LocalExpertBackendTest, RefusesWhatItDoesNotHoldByName) {
  const auto holder = Holding({{{0, 2}, {0, 9}}});
  const TestBatch batch = MakeBatch(1);
  std::vector<int64_t> out(batch.rows.size());
  const ExpertSlice asked{{0, 3}, {0, 9}};
  EXPECT_THAT(holder->Execute(batch.View(), {&asked, 1}, {}, out),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("units 2-2 of experts 0-8 are asked for and not held here")));
}

TEST_P(LocalExpertBackendTest, NamesTheUnitWhoseOutputLeavesTheFixedPointRange) {
  const auto backend = Backend(pool_);
  for (const int64_t num_rows : {1, 3}) {
    TestBatch batch = MakeBatch(num_rows);
    for (float& value : std::span(batch.rows).first(kHiddenSize)) {
      value *= 1e6F;
    }
    EXPECT_THAT(ExecuteStatus(*backend, batch),
                StatusIs(absl::StatusCode::kOutOfRange,
                         ::testing::MatchesRegex("layer 2 expert (0|4|8) unit [0-2]: .*2\\^17.*")));
  }
}

TEST_P(LocalExpertBackendTest, NeedsSlotsForTheExpertsOfOneToken) {
  LocalExpertBackend::Options options;
  options.cache_records = kPerToken - 1;
  EXPECT_EQ(LocalExpertBackend::MinCacheRecords(container_->config()), kPerToken);
  EXPECT_THAT(LocalExpertBackend::Open(*container_, options, pool_, Clock::Real()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("at least 3")));
}

}  // namespace
}  // namespace shoal

#include "coordinator/model/loop_calibration.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/io/aligned_buffer.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "coordinator/model/trunk_loops.h"
#include "kernels/matvec.h"

namespace shoal {
namespace {

constexpr int64_t kLeastCost = int64_t{1} << 15;
constexpr int64_t kMostCost = int64_t{1} << 21;
constexpr double kClearlyLess = 0.95;
constexpr absl::string_view kProfileName = "trunk-loops";

using Times = std::array<absl::Duration, 9>;

absl::Duration Median(Times times) {
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

bool ParallelIsFaster(int64_t cost, const TimeLoop& time_loop) {
  Times alone;
  Times parallel;
  for (size_t round = 0; round < alone.size(); ++round) {
    alone[round] = time_loop(cost, false);
    parallel[round] = time_loop(cost, true);
  }
  return Median(parallel) < kClearlyLess * Median(alone);
}

// A matrix that fits the caches, applied to as many rows as a cost asks for.
class ProductLoops {
 public:
  ProductLoops(ThreadPool& pool, const Clock& clock)
      : clock_(clock),
        parallel_(pool, 0),
        alone_(pool, 2 * kMostCost),
        weights_(static_cast<size_t>(kRows * kCols), 0.5F),
        x_(static_cast<size_t>(kMostX * kCols), 0.25F),
        out_(static_cast<size_t>(kMostX * kRows)) {}

  absl::Duration Time(int64_t cost, bool parallel) {
    const Matrix matrix{TrunkType::kF32, kRows, kCols, weights_.data()};
    const MatMulInput input{cost / (kRows * kCols), x_.data()};
    const absl::Time before = clock_.Now();
    (parallel ? parallel_ : alone_)
        .ForPieces(kRows, input.num_x * kCols, [&](int64_t begin, int64_t end) {
          MatMul(matrix, input, begin, end, out_.data(), kRows);
        });
    return clock_.Now() - before;
  }

 private:
  static constexpr int64_t kRows = 128;
  static constexpr int64_t kCols = 256;
  static constexpr int64_t kMostX = kMostCost / (kRows * kCols);
  static_assert(kLeastCost == kRows * kCols);

  const Clock& clock_;
  const TrunkLoops parallel_;
  const TrunkLoops alone_;
  std::vector<float> weights_;
  std::vector<float> x_;
  std::vector<float> out_;
};

absl::StatusOr<int64_t> LoadCost(const ProfileStore& store, const Json& conditions) {
  SHOAL_ASSIGN_OR_RETURN(const Json measured, store.Load(kProfileName, conditions));
  JsonFields fields(measured, absl::StrCat(store.Path(kProfileName, conditions), ": measured"));
  fields.AllowOnly({"least_parallel_multiply_adds"});
  const int64_t cost = fields.Int("least_parallel_multiply_adds", 1, 2 * kMostCost);
  SHOAL_RETURN_IF_ERROR(fields.status());
  return cost;
}

}  // namespace

int64_t PickParallelCost(const TimeLoop& time_loop) {
  int64_t least = 2 * kMostCost;
  for (int64_t cost = kMostCost; cost >= kLeastCost && ParallelIsFaster(cost, time_loop);
       cost /= 2) {
    least = cost;
  }
  return least;
}

int64_t MeasureParallelCost(ThreadPool& pool, const Clock& clock) {
  if (pool.num_threads() == 1) {
    return kUsualParallelCost;
  }
  ProductLoops loops(pool, clock);
  return PickParallelCost(
      [&loops](int64_t cost, bool parallel) { return loops.Time(cost, parallel); });
}

CalibratedLoops CalibrateLoops(const ProfileStore& store, ThreadPool& pool, const Clock& clock) {
  const Json conditions = MachineConditions(pool.num_threads());
  const absl::StatusOr<int64_t> kept = LoadCost(store, conditions);
  if (kept.ok()) {
    return {*kept, absl::StrCat("kept in ", store.Path(kProfileName, conditions))};
  }
  const int64_t cost = MeasureParallelCost(pool, clock);
  const absl::Status saved =
      store.Save(kProfileName, conditions, {{"least_parallel_multiply_adds", cost}});
  return {cost, MeasuredOrigin(kept.status(), saved)};
}

}  // namespace shoal

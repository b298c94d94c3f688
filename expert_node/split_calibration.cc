#include "expert_node/split_calibration.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/io/aligned_buffer.h"
#include "common/io/json_fields.h"
#include "common/status/status_macros.h"
#include "expert_node/expert_executor.h"
#include "kernels/split_mix.h"

namespace shoal {
namespace {

constexpr std::array<int64_t, 6> kRowCounts = {1, 2, 4, 8, 16, 32};
constexpr int kLeastRounds = 5;
// Short calls are noisy: more of them, until they take as long as this.
constexpr int kMostRounds = 51;
constexpr absl::Duration kEnoughTime = absl::Milliseconds(8);
constexpr double kClearlyLess = 0.95;
constexpr absl::Duration kMostTime = absl::Milliseconds(500);
constexpr absl::string_view kProfileName = "expert-splits";

// What a call usually takes with each split, and the time of all calls.
struct UsualTimes {
  std::vector<absl::Duration> times;  // of each possible split
  absl::Duration total;
};

absl::Duration Median(std::vector<absl::Duration> times) {
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

absl::StatusOr<UsualTimes> TimeSplits(const std::vector<ExpertSplit>& possible, int64_t num_rows,
                                      const TimeCall& time_call) {
  UsualTimes usual;
  std::vector<std::vector<absl::Duration>> times(possible.size());
  for (int round = 0; round < kLeastRounds || (round < kMostRounds && usual.total < kEnoughTime);
       ++round) {
    for (size_t i = 0; i < possible.size(); ++i) {
      SHOAL_ASSIGN_OR_RETURN(const absl::Duration time, time_call(possible[i], num_rows));
      times[i].push_back(time);
      usual.total += time;
    }
  }
  for (std::vector<absl::Duration>& of_split : times) {
    usual.times.push_back(Median(std::move(of_split)));
  }
  return usual;
}

ExpertSplit PickOne(const std::vector<ExpertSplit>& possible, ExpertSplit usual,
                    const std::vector<absl::Duration>& times) {
  const auto usual_at = std::find(possible.begin(), possible.end(), usual) - possible.begin();
  const auto least_at = std::min_element(times.begin(), times.end()) - times.begin();
  const bool clearly =
      times[static_cast<size_t>(least_at)] < kClearlyLess * times[static_cast<size_t>(usual_at)];
  return clearly ? possible[static_cast<size_t>(least_at)] : usual;
}

// Calls of a model whose weights have yet to be read: one expert's units stand for those of all.
class ImitatedCalls {
 public:
  static absl::StatusOr<std::unique_ptr<ImitatedCalls>> Create(const CalibrationCase& calibration,
                                                               ThreadPool& pool,
                                                               const Clock& clock) {
    auto calls = std::unique_ptr<ImitatedCalls>(new ImitatedCalls(calibration, clock));
    for (const ExpertSplit split : PossibleSplits(calibration.model.layout)) {
      SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<ExpertExecutor> executor,
                             ExpertExecutor::Create(calibration.model, calibration.kernels,
                                                    ExpertSplits::Always(split), pool));
      calls->executors_.emplace_back(split, std::move(executor));
    }
    SHOAL_ASSIGN_OR_RETURN(
        calls->units_,
        AlignedBuffer::Allocate(static_cast<uint64_t>(calibration.slice.units.size()) *
                                calibration.model.layout.unit_bytes));
    // A scale of 0.1 as a float16, small as a float32, and codes as good as any.
    std::fill(calls->units_.bytes().begin(), calls->units_.bytes().end(), std::byte{0x2E});
    return calls;
  }

  absl::StatusOr<absl::Duration> Time(ExpertSplit split, int64_t num_rows) {
    const Rows& rows = RowsOf(num_rows);
    std::vector<ExpertWork> work;
    for (size_t expert = 0; expert < rows.of_expert.size(); ++expert) {
      if (!rows.of_expert[expert].empty()) {
        work.push_back({calibration_.slice.experts.begin + static_cast<int64_t>(expert),
                        calibration_.slice.units, units_.bytes(), rows.of_expert[expert]});
      }
    }
    std::vector<int64_t> out(rows.values.size());
    const absl::Time before = clock_.Now();
    SHOAL_RETURN_IF_ERROR(ExecutorOf(split).Apply(calibration_.model.layers.front(),
                                                  calibration_.arithmetic, work, rows.values, out));
    return clock_.Now() - before;
  }

 private:
  struct Rows {
    std::vector<float> values;                      // [num_rows, hidden_size]
    std::vector<std::vector<ExpertRow>> of_expert;  // those that chose it
  };

  ImitatedCalls(const CalibrationCase& calibration, const Clock& clock)
      : calibration_(calibration), clock_(clock) {}

  ExpertExecutor& ExecutorOf(ExpertSplit split) {
    return *std::find_if(executors_.begin(), executors_.end(), [split](const auto& executor) {
              return executor.first == split;
            })->second;
  }

  // Made when first asked for.
  const Rows& RowsOf(int64_t num_rows) {
    if (num_rows != num_rows_) {
      rows_ = MakeRows(num_rows);
      num_rows_ = num_rows;
    }
    return rows_;
  }

  // Every row chooses the slice's share of the experts a token has, at least one.
  Rows MakeRows(int64_t num_rows) const {
    const ExpertModel& model = calibration_.model;
    const int64_t experts = calibration_.slice.experts.size();
    const int64_t chosen =
        std::clamp<int64_t>(model.num_experts_per_token * experts / model.num_experts, 1, experts);
    Rows rows;
    rows.values.resize(static_cast<size_t>(num_rows * model.layout.hidden_size));
    for (size_t i = 0; i < rows.values.size(); ++i) {
      rows.values[i] = i % 2 == 0 ? 0x1p-12F : -0x1p-13F;
    }
    rows.of_expert.resize(static_cast<size_t>(experts));
    SplitMix64Stream random(1);
    std::vector<size_t> order(static_cast<size_t>(experts));
    std::iota(order.begin(), order.end(), size_t{0});
    for (int64_t row = 0; row < num_rows; ++row) {
      for (size_t i = 0; i < static_cast<size_t>(chosen); ++i) {
        std::swap(order[i], order[i + random.Next() % (order.size() - i)]);
        rows.of_expert[order[i]].push_back({row, 1.0F / static_cast<float>(chosen)});
      }
    }
    return rows;
  }

  const CalibrationCase& calibration_;
  const Clock& clock_;
  std::vector<std::pair<ExpertSplit, std::unique_ptr<ExpertExecutor>>> executors_;
  AlignedBuffer units_;
  int64_t num_rows_ = 0;  // of rows_
  Rows rows_;
};

Json Conditions(const CalibrationCase& calibration, int num_threads) {
  const ExpertModel& model = calibration.model;
  Json conditions = MachineConditions(num_threads);
  conditions["experts"] = ExpertCodecName(model.layout.codec);
  conditions["kernels"] = KernelTargetName(calibration.kernels);
  conditions["arithmetic"] = ExpertArithmeticName(calibration.arithmetic);
  conditions["hidden_size"] = model.layout.hidden_size;
  conditions["unit_width"] = model.layout.unit_width;
  conditions["num_units"] = calibration.slice.units.size();
  conditions["num_experts"] = calibration.slice.experts.size();
  conditions["num_experts_of_model"] = model.num_experts;
  conditions["num_experts_per_token"] = model.num_experts_per_token;
  return conditions;
}

absl::StatusOr<ExpertSplits> LoadSplits(const ProfileStore& store, const Json& conditions,
                                        const UnitLayout& layout) {
  SHOAL_ASSIGN_OR_RETURN(const Json measured, store.Load(kProfileName, conditions));
  return ExpertSplits::FromJson(measured.value("splits", Json()), layout,
                                store.Path(kProfileName, conditions));
}

}  // namespace

absl::StatusOr<ExpertSplits> PickSplits(const std::vector<ExpertSplit>& possible,
                                        const ExpertSplits& usual, absl::Duration most_time,
                                        const TimeCall& time_call) {
  ExpertSplits splits = ExpertSplits::Always(usual.For(1));
  absl::Duration total;
  absl::Duration next;  // what twice the rows will take
  for (const int64_t num_rows : kRowCounts) {
    ExpertSplit split = usual.For(num_rows);
    if (total + next <= most_time) {
      SHOAL_ASSIGN_OR_RETURN(const UsualTimes tried, TimeSplits(possible, num_rows, time_call));
      split = PickOne(possible, split, tried.times);
      total += tried.total;
      next = 2 * tried.total;
    }
    if (num_rows == 1) {
      splits = ExpertSplits::Always(split);
    } else {
      splits.Add(num_rows, split);
    }
  }
  return splits;
}

absl::StatusOr<ExpertSplits> MeasureSplits(const CalibrationCase& calibration, ThreadPool& pool,
                                           const Clock& clock) {
  SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<ImitatedCalls> calls,
                         ImitatedCalls::Create(calibration, pool, clock));
  const UnitLayout& layout = calibration.model.layout;
  return PickSplits(
      PossibleSplits(layout), ExpertSplits::Usual(layout, pool.num_threads()), kMostTime,
      [&calls](ExpertSplit split, int64_t num_rows) { return calls->Time(split, num_rows); });
}

absl::StatusOr<CalibratedSplits> CalibrateSplits(const CalibrationCase& calibration,
                                                 const ProfileStore& store, ThreadPool& pool,
                                                 const Clock& clock) {
  const Json conditions = Conditions(calibration, pool.num_threads());
  absl::StatusOr<ExpertSplits> kept = LoadSplits(store, conditions, calibration.model.layout);
  if (kept.ok()) {
    return CalibratedSplits{*std::move(kept),
                            absl::StrCat("kept in ", store.Path(kProfileName, conditions))};
  }
  SHOAL_ASSIGN_OR_RETURN(ExpertSplits splits, MeasureSplits(calibration, pool, clock));
  const absl::Status saved = store.Save(kProfileName, conditions, {{"splits", splits.ToJson()}});
  return CalibratedSplits{std::move(splits), MeasuredOrigin(kept.status(), saved)};
}

}  // namespace shoal

#include "expert_node/expert_executor.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/expert_apply.h"
#include "kernels/fixed_point.h"

namespace shoal {
namespace {

// What one thread needs, each part on its own cache lines.
struct ScratchSizes {
  uint64_t prepared = 0;  // of one prepared row
  uint64_t kernel = 0;    // ExpertScratchBytes
  uint64_t sums = 0;      // a row of int64 sums
  uint64_t total() const { return prepared + kernel + sums; }
};

uint64_t RoundUp(uint64_t bytes) { return AlignUp(bytes, kSectionAlignment); }

ScratchSizes SizesFor(const UnitLayout& layout) {
  ScratchSizes sizes;
  sizes.prepared =
      RoundUp(static_cast<uint64_t>(UnitArithmetic::PreparedElements(layout)) * sizeof(int32_t));
  sizes.kernel =
      RoundUp(static_cast<uint64_t>(ExpertScratchBytes(layout.hidden_size, layout.unit_width)));
  sizes.sums = RoundUp(static_cast<uint64_t>(layout.hidden_size) * sizeof(int64_t));
  return sizes;
}

// One choice of a row: which work item, with which weight.
struct Choice {
  size_t work = 0;
  float weight = 0;
};

constexpr int64_t kNoFailure = std::numeric_limits<int64_t>::max();

}  // namespace

struct ExpertExecutor::Worker {
  std::span<int32_t> prepared;
  std::span<std::byte> kernel;
  std::span<int64_t> sums;
};

struct ExpertExecutor::Call {
  size_t layer = 0;  // its place among the MoE layers
  std::span<const ExpertWork> work;
  std::span<const float> rows;
  std::span<int64_t> out;
  std::vector<std::vector<Choice>> choices;  // of each row
  // The first (work item, unit) whose term left the range: of all that failed, not the one that a
  // thread was fastest to find.
  std::atomic<int64_t> first_failure{kNoFailure};

  std::span<const float> Row(int64_t row, int64_t hidden_size) const {
    return rows.subspan(static_cast<size_t>(row * hidden_size), static_cast<size_t>(hidden_size));
  }
  std::span<int64_t> Out(int64_t row, int64_t hidden_size) const {
    return out.subspan(static_cast<size_t>(row * hidden_size), static_cast<size_t>(hidden_size));
  }
  void Fail(int64_t failure) {
    int64_t seen = first_failure.load();
    while (failure < seen && !first_failure.compare_exchange_weak(seen, failure)) {
    }
  }
};

ExpertExecutor::ExpertExecutor(const ExpertModel& model, KernelTarget kernels, ThreadPool& pool,
                               AlignedBuffer scratch)
    : model_(model), arithmetic_(model, kernels), pool_(pool), scratch_(std::move(scratch)) {}

uint64_t ExpertExecutor::ScratchBytes(const UnitLayout& layout, int num_threads) {
  return SizesFor(layout).total() * static_cast<uint64_t>(num_threads);
}

absl::StatusOr<std::unique_ptr<ExpertExecutor>> ExpertExecutor::Create(const ExpertModel& model,
                                                                       KernelTarget kernels,
                                                                       ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(AlignedBuffer scratch,
                         AlignedBuffer::Allocate(ScratchBytes(model.layout, pool.num_threads())));
  return std::unique_ptr<ExpertExecutor>(
      new ExpertExecutor(model, kernels, pool, std::move(scratch)));
}

ExpertExecutor::Worker ExpertExecutor::WorkerAt(int worker) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const ScratchSizes sizes = SizesFor(model_.layout);
  std::byte* begin = scratch_.data() + static_cast<uint64_t>(worker) * sizes.total();
  Worker views;
  views.prepared = {reinterpret_cast<int32_t*>(begin), sizes.prepared / sizeof(int32_t)};
  views.kernel = {begin + sizes.prepared, sizes.kernel};
  views.sums = {reinterpret_cast<int64_t*>(begin + sizes.prepared + sizes.kernel),
                static_cast<size_t>(model_.layout.hidden_size)};
  return views;
}

// All of one row's experts on one thread: every thread has a row of its own.
void ExpertExecutor::ApplyRow(Call& call, int64_t row, int worker) {
  const UnitLayout& layout = model_.layout;
  const auto& choices = call.choices[static_cast<size_t>(row)];
  if (choices.empty()) {
    return;
  }
  const Worker scratch = WorkerAt(worker);
  const PreparedInput input =
      arithmetic_.Prepare(call.layer, call.Row(row, layout.hidden_size), scratch.prepared);
  for (const Choice& choice : choices) {
    const ExpertWork& work = call.work[choice.work];
    for (int64_t unit = work.units.begin; unit < work.units.end; ++unit) {
      if (!arithmetic_.Apply(input, work.Unit(layout, unit), choice.weight, scratch.kernel,
                             call.Out(row, layout.hidden_size))) {
        call.Fail(static_cast<int64_t>(choice.work) * layout.num_units + unit);
        return;
      }
    }
  }
}

// One row's (expert, unit) pairs shared out among the threads, each with sums of its own: for
// decode, where there are fewer rows than threads.
void ExpertExecutor::ApplyRowByUnits(Call& call, int64_t row) {
  const UnitLayout& layout = model_.layout;
  const auto& choices = call.choices[static_cast<size_t>(row)];
  if (choices.empty()) {
    return;
  }
  const PreparedInput input =
      arithmetic_.Prepare(call.layer, call.Row(row, layout.hidden_size), WorkerAt(0).prepared);
  for (int worker = 0; worker < pool_.num_threads(); ++worker) {
    const auto sums = WorkerAt(worker).sums;
    std::fill(sums.begin(), sums.end(), 0);
  }
  std::vector<std::pair<Choice, int64_t>> tasks;  // a choice and one of its units
  for (const Choice& choice : choices) {
    const UnitRange& units = call.work[choice.work].units;
    for (int64_t unit = units.begin; unit < units.end; ++unit) {
      tasks.emplace_back(choice, unit);
    }
  }
  pool_.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int worker) {
    const auto& [choice, unit] = tasks[static_cast<size_t>(task)];
    const Worker scratch = WorkerAt(worker);
    if (!arithmetic_.Apply(input, call.work[choice.work].Unit(layout, unit), choice.weight,
                           scratch.kernel, scratch.sums)) {
      call.Fail(static_cast<int64_t>(choice.work) * layout.num_units + unit);
    }
  });
  for (int worker = 0; worker < pool_.num_threads(); ++worker) {
    AddSums(WorkerAt(worker).sums, call.Out(row, layout.hidden_size));
  }
}

absl::Status ExpertExecutor::Apply(int64_t layer, std::span<const ExpertWork> work,
                                   std::span<const float> rows, std::span<int64_t> out) {
  Call call;
  call.layer = *model_.LayerIndex(layer);
  call.work = work;
  call.rows = rows;
  call.out = out;
  call.choices.resize(rows.size() / static_cast<size_t>(model_.layout.hidden_size));
  for (size_t i = 0; i < work.size(); ++i) {
    for (const ExpertRow& chosen : work[i].rows) {
      call.choices[static_cast<size_t>(chosen.row)].push_back({i, chosen.weight});
    }
  }

  MutexLock lock(&mutex_);
  const auto num_rows = static_cast<int64_t>(call.choices.size());
  if (num_rows >= pool_.num_threads()) {
    pool_.ParallelFor(num_rows, [&](int64_t row, int worker) { ApplyRow(call, row, worker); });
  } else {
    for (int64_t row = 0; row < num_rows; ++row) {
      ApplyRowByUnits(call, row);
    }
  }
  const int64_t failure = call.first_failure.load();
  if (failure != kNoFailure) {
    const auto item = static_cast<size_t>(failure / model_.layout.num_units);
    return absl::OutOfRangeError(absl::StrCat(
        "layer ", layer, " expert ", work[item].expert, " unit ", failure % model_.layout.num_units,
        ": an output is not finite or exceeds 2^17; the weights or the hidden state are broken"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

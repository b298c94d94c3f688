#include "expert_node/expert_executor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/expert_apply_rows.h"
#include "kernels/fixed_point.h"

namespace shoal {
namespace {

// Memory for prepared rows where all rows of a call are kept, and the most that are: a prefill chunk.
constexpr uint64_t kPreparedBytes = uint64_t{8} << 20;
constexpr uint64_t kMostPreparedRows = 512;

uint64_t RoundUp(uint64_t bytes) { return AlignUp(bytes, kSectionAlignment); }

// The prepared rows, and what each thread needs, each part on its own cache lines.
struct ScratchSizes {
  uint64_t prepared = 0;       // of one prepared row
  uint64_t prepared_rows = 0;  // at least one a thread
  uint64_t kernel = 0;         // UnitArithmetic::ScratchBytes
  uint64_t sums = 0;           // a row of int64 sums
  uint64_t threads = 0;
  uint64_t total() const { return prepared_rows * prepared + threads * (kernel + sums); }
};

ScratchSizes SizesFor(const UnitLayout& layout, int num_threads) {
  ScratchSizes sizes;
  sizes.threads = static_cast<uint64_t>(num_threads);
  sizes.prepared =
      RoundUp(static_cast<uint64_t>(UnitArithmetic::PreparedElements(layout)) * sizeof(int32_t));
  sizes.prepared_rows = sizes.threads;
  if (UnitArithmetic::AppliesRowsTogether(layout)) {
    sizes.prepared_rows =
        std::max(sizes.threads, std::min(kMostPreparedRows, kPreparedBytes / sizes.prepared));
  }
  sizes.kernel = RoundUp(static_cast<uint64_t>(UnitArithmetic::ScratchBytes(layout)));
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
  std::span<std::byte> kernel;
  std::span<int64_t> sums;
};

struct ExpertExecutor::Call {
  explicit Call(const UnitArithmetic& the_arithmetic) : arithmetic(the_arithmetic) {}

  const UnitArithmetic& arithmetic;
  size_t layer = 0;  // its place among the MoE layers
  std::span<const ExpertWork> work;
  std::span<const float> rows;
  std::span<int64_t> out;
  std::vector<std::vector<Choice>> choices;  // of each row
  // Where rows go through units together: those from first_prepared on that are prepared now.
  int64_t first_prepared = 0;
  std::vector<PreparedInput> prepared;
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

ExpertExecutor::ExpertExecutor(const ExpertModel& model, KernelTarget kernels, ExpertSplits splits,
                               ThreadPool& pool, AlignedBuffer scratch)
    : model_(model),
      exact_(model, kernels, ExpertArithmetic::kExact),
      fast_(model, kernels, ExpertArithmetic::kFast),
      splits_(std::move(splits)),
      pool_(pool),
      scratch_(std::move(scratch)) {}

uint64_t ExpertExecutor::ScratchBytes(const UnitLayout& layout, int num_threads) {
  return SizesFor(layout, num_threads).total();
}

absl::StatusOr<std::unique_ptr<ExpertExecutor>> ExpertExecutor::Create(const ExpertModel& model,
                                                                       KernelTarget kernels,
                                                                       ExpertSplits splits,
                                                                       ThreadPool& pool) {
  SHOAL_ASSIGN_OR_RETURN(AlignedBuffer scratch,
                         AlignedBuffer::Allocate(ScratchBytes(model.layout, pool.num_threads())));
  return std::unique_ptr<ExpertExecutor>(
      new ExpertExecutor(model, kernels, std::move(splits), pool, std::move(scratch)));
}

ExpertExecutor::Worker ExpertExecutor::WorkerAt(int worker) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const ScratchSizes sizes = SizesFor(model_.layout, pool_.num_threads());
  std::byte* begin = scratch_.data() + sizes.prepared_rows * sizes.prepared +
                     static_cast<uint64_t>(worker) * (sizes.kernel + sizes.sums);
  Worker views;
  views.kernel = {begin, sizes.kernel};
  views.sums = {reinterpret_cast<int64_t*>(begin + sizes.kernel),
                static_cast<size_t>(model_.layout.hidden_size)};
  return views;
}

std::span<int32_t> ExpertExecutor::PreparedAt(int64_t row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const ScratchSizes sizes = SizesFor(model_.layout, pool_.num_threads());
  std::byte* begin = scratch_.data() + static_cast<uint64_t>(row) * sizes.prepared;
  return {reinterpret_cast<int32_t*>(begin), sizes.prepared / sizeof(int32_t)};
}

// All of one row's experts on one thread: every thread has a row of its own.
void ExpertExecutor::ApplyRow(Call& call, int64_t row, int worker) {
  const UnitLayout& layout = model_.layout;
  const auto& choices = call.choices[static_cast<size_t>(row)];
  if (choices.empty()) {
    return;
  }
  const Worker scratch = WorkerAt(worker);
  const PreparedInput input = call.arithmetic.Prepare(call.layer, call.Row(row, layout.hidden_size),
                                                      PreparedAt(worker), scratch.kernel);
  for (const Choice& choice : choices) {
    const ExpertWork& work = call.work[choice.work];
    for (int64_t unit = work.units.begin; unit < work.units.end; ++unit) {
      if (!call.arithmetic.Apply(input, work.Unit(layout, unit), choice.weight, scratch.kernel,
                                 call.Out(row, layout.hidden_size))) {
        call.Fail(static_cast<int64_t>(choice.work) * layout.num_units + unit);
        return;
      }
    }
  }
}

// One row's (expert, unit) pairs shared out among the threads, each with sums of its own.
void ExpertExecutor::ApplyRowByUnits(Call& call, int64_t row) {
  const UnitLayout& layout = model_.layout;
  const auto& choices = call.choices[static_cast<size_t>(row)];
  if (choices.empty()) {
    return;
  }
  const PreparedInput input = call.arithmetic.Prepare(call.layer, call.Row(row, layout.hidden_size),
                                                      PreparedAt(0), WorkerAt(0).kernel);
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
    if (!call.arithmetic.Apply(input, call.work[choice.work].Unit(layout, unit), choice.weight,
                               scratch.kernel, scratch.sums)) {
      call.Fail(static_cast<int64_t>(choice.work) * layout.num_units + unit);
    }
  });
  for (int worker = 0; worker < pool_.num_threads(); ++worker) {
    AddSums(WorkerAt(worker).sums, call.Out(row, layout.hidden_size));
  }
}

// Up to kMostRowsTogether rows of one work item.
class ExpertExecutor::Block {
 public:
  Block(ExpertExecutor& executor, Call& call, std::span<const std::byte> unit, int worker)
      : executor_(executor), call_(call), unit_(unit), scratch_(executor.WorkerAt(worker)) {}

  bool full() const { return size_ == rows_.size(); }
  void Add(const ExpertRow& chosen) {
    rows_[size_] = {InputOf(chosen.row).tcq, chosen.weight};
    targets_[size_] = chosen.row;
    ++size_;
  }
  // Adds what the unit gives for the rows, and is empty then. False as UnitArithmetic::Apply.
  bool Apply() {
    const size_t size = std::exchange(size_, 0);
    if (size == 0) {
      return true;
    }
    if (size == 1) {
      return ApplyOne();
    }
    return call_.arithmetic.ApplyToRows(
        {rows_.data(), size}, unit_, scratch_.kernel,
        [this](size_t row, int64_t first, std::span<const double> terms) {
          const std::span<int64_t> out = OutOf(targets_[row]);
          MutexLock lock(&MutexOf(targets_[row]));
          return AddFixedPoint(terms, out.subspan(static_cast<size_t>(first), terms.size()));
        });
  }

 private:
  const PreparedInput& InputOf(int64_t row) const {
    return call_.prepared[static_cast<size_t>(row - call_.first_prepared)];
  }
  std::span<int64_t> OutOf(int64_t row) const {
    return call_.Out(row, executor_.model_.layout.hidden_size);
  }
  Mutex& MutexOf(int64_t row) const {
    return executor_.row_mutexes_[static_cast<size_t>(row) % executor_.row_mutexes_.size()];
  }
  bool ApplyOne() {
    std::fill(scratch_.sums.begin(), scratch_.sums.end(), 0);
    if (!call_.arithmetic.Apply(InputOf(targets_[0]), unit_, static_cast<float>(rows_[0].weight),
                                scratch_.kernel, scratch_.sums)) {
      return false;
    }
    MutexLock lock(&MutexOf(targets_[0]));
    AddSums(scratch_.sums, OutOf(targets_[0]));
    return true;
  }

  ExpertExecutor& executor_;
  Call& call_;
  const std::span<const std::byte> unit_;
  const Worker scratch_;
  std::array<WeightedRow, kMostRowsTogether> rows_ = {};
  std::array<int64_t, kMostRowsTogether> targets_ = {};
  size_t size_ = 0;
};

// One unit of a work item with all rows that chose it and are prepared.
void ExpertExecutor::ApplyUnit(Call& call, size_t work, int64_t unit, int worker) {
  const ExpertWork& item = call.work[work];
  const int64_t end = call.first_prepared + std::ssize(call.prepared);
  Block block(*this, call, item.Unit(model_.layout, unit), worker);
  bool in_range = true;
  for (const ExpertRow& chosen : item.rows) {
    if (chosen.row >= call.first_prepared && chosen.row < end) {
      block.Add(chosen);
    }
    if (block.full()) {
      in_range = block.Apply() && in_range;
    }
  }
  in_range = block.Apply() && in_range;
  if (!in_range) {
    call.Fail(static_cast<int64_t>(work) * model_.layout.num_units + unit);
  }
}

// (Expert, unit) pairs shared out among the threads, each with all rows from `begin` to `end` that chose the
// expert.
void ExpertExecutor::ApplyRowsTogether(Call& call, int64_t begin, int64_t end) {
  call.first_prepared = begin;
  call.prepared.assign(static_cast<size_t>(end - begin), {});
  pool_.ParallelFor(end - begin, [&](int64_t i, int worker) {
    if (!call.choices[static_cast<size_t>(begin + i)].empty()) {
      call.prepared[static_cast<size_t>(i)] =
          call.arithmetic.Prepare(call.layer, call.Row(begin + i, model_.layout.hidden_size),
                                  PreparedAt(i), WorkerAt(worker).kernel);
    }
  });
  std::vector<std::pair<size_t, int64_t>> tasks;  // a work item and one of its units
  for (size_t i = 0; i < call.work.size(); ++i) {
    for (int64_t unit = call.work[i].units.begin; unit < call.work[i].units.end; ++unit) {
      tasks.emplace_back(i, unit);
    }
  }
  pool_.ParallelFor(static_cast<int64_t>(tasks.size()), [&](int64_t task, int worker) {
    const auto& [work, unit] = tasks[static_cast<size_t>(task)];
    ApplyUnit(call, work, unit, worker);
  });
}

void ExpertExecutor::ApplyAll(Call& call) {
  const auto num_rows = static_cast<int64_t>(call.choices.size());
  switch (splits_.For(num_rows)) {
    case ExpertSplit::kRows:
      pool_.ParallelFor(num_rows, [&](int64_t row, int worker) { ApplyRow(call, row, worker); });
      return;
    case ExpertSplit::kUnits:
      for (int64_t row = 0; row < num_rows; ++row) {
        ApplyRowByUnits(call, row);
      }
      return;
    case ExpertSplit::kRowsTogether:
      const auto at_once =
          static_cast<int64_t>(SizesFor(model_.layout, pool_.num_threads()).prepared_rows);
      for (int64_t begin = 0; begin < num_rows; begin += at_once) {
        ApplyRowsTogether(call, begin, std::min(begin + at_once, num_rows));
      }
  }
}

absl::Status ExpertExecutor::Apply(int64_t layer, ExpertArithmetic arithmetic,
                                   std::span<const ExpertWork> work, std::span<const float> rows,
                                   std::span<int64_t> out) {
  Call call(arithmetic == ExpertArithmetic::kExact ? exact_ : fast_);
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

  {
    MutexLock lock(&mutex_);
    ApplyAll(call);
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

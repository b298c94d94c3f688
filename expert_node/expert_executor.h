// Applies experts whose records are in memory to activation rows, on all threads of the pool.
#ifndef SHOAL_EXPERT_NODE_EXPERT_EXECUTOR_H_
#define SHOAL_EXPERT_NODE_EXPERT_EXECUTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "common/io/aligned_buffer.h"
#include "common/sync/mutex.h"
#include "common/sync/thread_pool.h"
#include "expert_node/expert_model.h"
#include "expert_node/expert_split.h"
#include "expert_node/unit_arithmetic.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"

namespace shoal {

// One row that chose an expert, with the expert's weight for it.
struct ExpertRow {
  int64_t row = 0;
  float weight = 0;
};

// Units of one expert to apply, checked, and the rows that chose the expert. Views; the caller
// keeps what they show.
struct ExpertWork {
  int64_t expert = 0;
  UnitRange units;                        // inside the layout
  std::span<const std::byte> unit_bytes;  // theirs: units.size() x layout.unit_bytes
  std::span<const ExpertRow> rows;

  // The bytes of one of `units`.
  std::span<const std::byte> Unit(const UnitLayout& layout, int64_t unit) const {
    return unit_bytes.subspan(static_cast<uint64_t>(unit - units.begin) * layout.unit_bytes,
                              layout.unit_bytes);
  }
};

// Thread-safe: calls from several threads take turns, each on the whole pool.
class ExpertExecutor {
 public:
  // Allocates scratch for every thread of the pool. `model` and `pool` outlive the executor. `kernels`
  // is one of SupportedKernelTargets and `splits` possible with the model's layout; the result depends on neither.
  static absl::StatusOr<std::unique_ptr<ExpertExecutor>> Create(const ExpertModel& model,
                                                                KernelTarget kernels,
                                                                ExpertSplits splits,
                                                                ThreadPool& pool);
  // What Create allocates.
  static uint64_t ScratchBytes(const UnitLayout& layout, int num_threads);

  // Adds to out [num_rows, hidden_size] what every work item gives for its rows. `rows` is
  // [num_rows, hidden_size]. The
  // result depends on the arithmetic, and not on the order of work or on the number of threads: every term is
  // rounded once and integers are added. OUT_OF_RANGE names layer, expert and unit of the first term, in
  // the order of `work`, that exceeds the fixed point range.
  absl::Status Apply(int64_t layer, ExpertArithmetic arithmetic, std::span<const ExpertWork> work,
                     std::span<const float> rows, std::span<int64_t> out);

 private:
  struct Worker;  // one thread's views of scratch_
  struct Call;    // the arguments of one Apply, by row
  class Block;    // rows that go through a unit together
  ExpertExecutor(const ExpertModel& model, KernelTarget kernels, ExpertSplits splits,
                 ThreadPool& pool, AlignedBuffer scratch);
  Worker WorkerAt(int worker);
  std::span<int32_t> PreparedAt(int64_t row);
  void ApplyRow(Call& call, int64_t row, int worker);
  void ApplyRowByUnits(Call& call, int64_t row);
  void ApplyRowsTogether(Call& call, int64_t begin, int64_t end);
  void ApplyAll(Call& call);
  void ApplyUnit(Call& call, size_t work, int64_t unit, int worker);

  const ExpertModel& model_;
  const UnitArithmetic exact_;
  const UnitArithmetic fast_;
  const ExpertSplits splits_;
  ThreadPool& pool_;
  Mutex mutex_;
  AlignedBuffer scratch_ ABSL_GUARDED_BY(mutex_);
  // Of a row of `out`, by its number: several threads may have terms for it.
  std::array<Mutex, 64> row_mutexes_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_EXECUTOR_H_

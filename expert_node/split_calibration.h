// Which split of the executor's work is fastest on this machine, found by trying.
#ifndef SHOAL_EXPERT_NODE_SPLIT_CALIBRATION_H_
#define SHOAL_EXPERT_NODE_SPLIT_CALIBRATION_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/io/profile_store.h"
#include "common/sync/clock.h"
#include "common/sync/thread_pool.h"
#include "expert_node/expert_model.h"
#include "expert_node/expert_split.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"

namespace shoal {

// What is calibrated: calls that compute `slice` of a layer's experts.
struct CalibrationCase {
  const ExpertModel& model;
  ExpertSlice slice;
  KernelTarget kernels;
  ExpertArithmetic arithmetic;
};

// How long one call with so many rows takes with a split.
using TimeCall = std::function<absl::StatusOr<absl::Duration>(ExpertSplit split, int64_t num_rows)>;

// For 1, 2, 4, ... and 32 rows the split of `possible` whose median call of at least five, taken in turns,
// is shortest; the one of `usual` where none is shorter than its by more than a twentieth. Numbers of rows
// that would bring the time of all calls above `most_time` get those of `usual`; more than 32 rows get what 32 get.
// `time_call`'s errors.
absl::StatusOr<ExpertSplits> PickSplits(const std::vector<ExpertSplit>& possible,
                                        const ExpertSplits& usual, absl::Duration most_time,
                                        const TimeCall& time_call);

// PickSplits with calls like those of a model: units in memory, and rows that choose experts at random. Takes half a
// second, or as long as the calls with one row if that is more, and the memory of one executor for each possible split and of one expert's units,
// which is given back. The errors of ExpertExecutor, RESOURCE_EXHAUSTED among them.
absl::StatusOr<ExpertSplits> MeasureSplits(const CalibrationCase& calibration, ThreadPool& pool,
                                           const Clock& clock);

// The splits that `store` has for this machine, these threads, this program and this case, else MeasureSplits', which
// it is then given to keep.
struct CalibratedSplits {
  ExpertSplits splits;
  std::string origin;  // for people: where they come from, and why they could not be loaded or kept
};
absl::StatusOr<CalibratedSplits> CalibrateSplits(const CalibrationCase& calibration,
                                                 const ProfileStore& store, ThreadPool& pool,
                                                 const Clock& clock);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SPLIT_CALIBRATION_H_

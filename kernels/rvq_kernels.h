// The integer sums of rvq3 for one row of activations, once for each instruction set: a table for every
// position (eight activations), and its entries added by the codes of a unit's rows. Sums are exact, so
// every target gives the same.
#ifndef SHOAL_KERNELS_RVQ_KERNELS_H_
#define SHOAL_KERNELS_RVQ_KERNELS_H_

#include <cstdint>

#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"
#include "kernels/rvq.h"

namespace shoal {

// int32 elements that the tables of one position take, whatever a target keeps there: entry i of
// a stage stands for value(stage, i) = sum_d book[stage][i][d] * q[d], d < 8. In fast arithmetic values are rounded to
// 16 bits (rvq_shift.h).
inline constexpr int64_t kRvqTableElements = kRvqStages * kCodebookEntries;

// Of one arithmetic. Thread-safe: functions of their arguments.
struct RvqKernels {
  int planes = 0;  // of the activations (expert_arithmetic.h)
  // Builds the tables of `positions` positions from book [4 stages][64 entries][8] (RvqCodebook::values)
  // and q [8 * positions], |q| <= ActivationMax(planes).
  // `tables` has kRvqTableElements for each, best aligned to 64 bytes.
  void (*build_tables)(const int8_t* book, const int32_t* q, int64_t positions, int32_t* tables);
  // sums[r] += sum over positions and stages of value(stage, index of row r's code), for r < rows.
  // `codes` has three planes of `rows` bytes (rvq.h) at every position, which are `position_stride`
  // bytes apart, and no alignment. `tables` are those that the same target built for as many positions.
  void (*add_codes)(const uint8_t* codes, int64_t position_stride, int64_t positions, int64_t rows,
                    const int32_t* tables, int64_t* sums);
};

// REQUIRES: the target is one of SupportedKernelTargets.
const RvqKernels& RvqKernelsOf(KernelTarget target, ExpertArithmetic arithmetic);

// Each in a file of its own, compiled for its target.
const RvqKernels& RvqKernelsScalar(ExpertArithmetic arithmetic);
const RvqKernels& RvqKernelsAvx2(ExpertArithmetic arithmetic);
const RvqKernels& RvqKernelsAvx512(ExpertArithmetic arithmetic);

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_KERNELS_H_

// The kernels of a model's codec in one arithmetic: one unit at a time, with one row or several.
#ifndef SHOAL_EXPERT_NODE_UNIT_ARITHMETIC_H_
#define SHOAL_EXPERT_NODE_UNIT_ARITHMETIC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/container/unit_layout.h"
#include "expert_node/expert_model.h"
#include "kernels/expert_apply.h"
#include "kernels/expert_apply_rows.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/input_rotation.h"
#include "kernels/kernel_target.h"

namespace shoal {

// An activation row, made ready for every expert of its layer. What it points into belongs to the caller.
struct PreparedInput {
  size_t layer = 0;            // its place among the MoE layers
  std::span<const float> row;  // f32
  RvqPreparedRow rvq;
  TcqPreparedRow tcq;
};

// Thread-safe: nothing changes after construction.
class UnitArithmetic {
 public:
  // `model` outlives the arithmetic. `kernels` is one of SupportedKernelTargets.
  UnitArithmetic(const ExpertModel& model, KernelTarget kernels, ExpertArithmetic arithmetic);

  // int32 elements that a prepared row takes at most; 0 where rows are used as they are.
  static int64_t PreparedElements(const UnitLayout& layout);
  // Bytes of scratch that one thread needs for any of the functions below, aligned to 64.
  static int64_t ScratchBytes(const UnitLayout& layout);

  // Prepares row [hidden_size] for the layer. `storage` has PreparedElements, aligned to 64 bytes; both are
  // pointed into.
  PreparedInput Prepare(size_t layer, std::span<const float> row, std::span<int32_t> storage,
                        std::span<std::byte> scratch) const;

  // Adds what a unit of the layer gives for the row to out [hidden_size], as kernels/expert_apply.h says; false
  // where a term is not finite or out of range.
  bool Apply(const PreparedInput& input, std::span<const std::byte> unit, float weight,
             std::span<std::byte> scratch, std::span<int64_t> out) const;

  // Whether several rows go through a unit faster together: where its codes cost more to decode than prepared
  // rows to keep.
  static bool AppliesRowsTogether(const UnitLayout& layout);
  // The same as Apply for 1 to kMostRowsTogether rows: hands their terms to `add`
  // (kernels/expert_apply_rows.h). REQUIRES: AppliesRowsTogether.
  bool ApplyToRows(std::span<const WeightedRow> rows, std::span<const std::byte> unit,
                   std::span<std::byte> scratch, const AddTerms& add) const;

 private:
  const ExpertModel& model_;
  const RvqKernels& rvq_;
  const TcqKernels& tcq_;
  const ExpertRotations rotations_;  // of tcq3
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_UNIT_ARITHMETIC_H_

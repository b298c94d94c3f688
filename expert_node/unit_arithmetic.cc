#include "expert_node/unit_arithmetic.h"

#include <algorithm>

#include "expert_node/unit_view.h"

namespace shoal {
namespace {

ExpertRotations RotationsOf(const ExpertModel& model) {
  return model.layout.codec == ExpertCodec::kTcq3
             ? ExpertRotations::Of(model.layout.hidden_size, model.layout.unit_width, model.seed)
             : ExpertRotations{};
}

}  // namespace

UnitArithmetic::UnitArithmetic(const ExpertModel& model, KernelTarget kernels,
                               ExpertArithmetic arithmetic)
    : model_(model),
      rvq_(RvqKernelsOf(kernels, arithmetic)),
      tcq_(TcqKernelsOf(kernels, arithmetic)),
      rotations_(RotationsOf(model)) {}

int64_t UnitArithmetic::PreparedElements(const UnitLayout& layout) {
  switch (layout.codec) {
    case ExpertCodec::kRvq3:
      return RvqPreparedRowElements(layout.hidden_size);
    case ExpertCodec::kTcq3:
      return TcqRowWords(layout.hidden_size);
    case ExpertCodec::kF32:
      break;
  }
  return 0;
}

int64_t UnitArithmetic::ScratchBytes(const UnitLayout& layout) {
  const int64_t one_row = ExpertScratchBytes(layout.hidden_size, layout.unit_width);
  if (layout.codec != ExpertCodec::kTcq3) {
    return one_row;
  }
  return std::max({one_row, ExpertRowsScratchBytes(layout.hidden_size, layout.unit_width),
                   TcqRowScratchBytes(layout.hidden_size)});
}

PreparedInput UnitArithmetic::Prepare(size_t layer, std::span<const float> row,
                                      std::span<int32_t> storage,
                                      std::span<std::byte> scratch) const {
  PreparedInput input;
  input.layer = layer;
  input.row = row;
  if (model_.layout.codec == ExpertCodec::kRvq3) {
    input.rvq = PrepareRvqRow(rvq_, model_.codebooks[layer], row, storage);
  } else if (model_.layout.codec == ExpertCodec::kTcq3) {
    input.tcq = PrepareTcqRow(rotations_.input, tcq_.planes, row, storage, scratch);
  }
  return input;
}

bool UnitArithmetic::Apply(const PreparedInput& input, std::span<const std::byte> unit,
                           float weight, std::span<std::byte> scratch,
                           std::span<int64_t> out) const {
  const UnitLayout& layout = model_.layout;
  switch (layout.codec) {
    case ExpertCodec::kRvq3:
      return ApplyRvqUnit(rvq_, ViewCodedUnit(layout, unit), model_.codebooks[input.layer],
                          input.rvq, weight, scratch, out);
    case ExpertCodec::kTcq3:
      return ApplyTcqUnit(tcq_, ViewCodedUnit(layout, unit), rotations_.unit, input.tcq, weight,
                          scratch, out);
    case ExpertCodec::kF32:
      break;
  }
  return ApplyF32Unit(ViewF32Unit(layout, unit), input.row, weight, scratch, out);
}

bool UnitArithmetic::AppliesRowsTogether(const UnitLayout& layout) {
  return layout.codec == ExpertCodec::kTcq3;
}

bool UnitArithmetic::ApplyToRows(std::span<const WeightedRow> rows, std::span<const std::byte> unit,
                                 std::span<std::byte> scratch, const AddTerms& add) const {
  return ApplyTcqUnitToRows(tcq_, ViewCodedUnit(model_.layout, unit), rotations_.unit, rows,
                            scratch, add);
}

}  // namespace shoal

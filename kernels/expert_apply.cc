#include "kernels/expert_apply.h"

#include <algorithm>

#include "kernels/activation_quant.h"
#include "kernels/fixed_point.h"
#include "kernels/lanes.h"
#include "kernels/unit_steps.h"

namespace shoal {
namespace {

int64_t Positions(int64_t cols) { return (cols + kSubVectorSize - 1) / kSubVectorSize; }

// Where the parts of a unit's scratch begin.
struct Scratch {
  std::span<int32_t> prepared;   // [unit_positions * 256]: activations, prepared for down
  int64_t* sums = nullptr;       // [max(hidden_size, 2 * unit_width)]
  double* terms = nullptr;       // [hidden_size]
  int32_t* quantized = nullptr;  // [unit_width]
  float* activated = nullptr;    // [unit_width]
};

int64_t SumsSize(int64_t hidden_size, int64_t unit_width) {
  return std::max(hidden_size, 2 * unit_width);
}

Scratch Carve(std::span<std::byte> storage, int64_t hidden_size, int64_t unit_width) {
  Scratch scratch;
  scratch.prepared = {reinterpret_cast<int32_t*>(storage.data()),
                      static_cast<size_t>(Positions(unit_width) * kRvqTableElements)};
  scratch.sums = reinterpret_cast<int64_t*>(scratch.prepared.data() + scratch.prepared.size());
  scratch.terms = reinterpret_cast<double*>(scratch.sums + SumsSize(hidden_size, unit_width));
  scratch.quantized = reinterpret_cast<int32_t*>(scratch.terms + hidden_size);
  scratch.activated = reinterpret_cast<float*>(scratch.quantized + unit_width);
  return scratch;
}

// What differs between the codecs with integer sums: how sums of gate and up (2 * unit_width, gate first) and
// of down are made of prepared activations, and how a unit's activations are prepared for down. Each sets all
// sums.
struct RvqArithmetic {
  const RvqKernels& kernels;
  const LayerCodebooks& books;

  void GateUp(const CodedUnit& unit, const RvqPreparedRow& row, int64_t* sums) const {
    const int64_t width = unit.unit_width;
    const int64_t matrix_bytes = kRvqPlanes * width;  // of a position
    const int64_t positions = Positions(unit.hidden_size);
    std::fill(sums, sums + 2 * width, 0);
    kernels.add_codes(unit.gate_up, 2 * matrix_bytes, positions, width, row.gate_table, sums);
    kernels.add_codes(unit.gate_up + matrix_bytes, 2 * matrix_bytes, positions, width, row.up_table,
                      sums + width);
  }
  // Returns the scale of the activations.
  double Down(const CodedUnit& unit, const Scratch& scratch) const {
    const auto width = static_cast<size_t>(unit.unit_width);
    const std::span<int32_t> quantized(scratch.quantized, width);
    const double scale = QuantizeActivations(std::span<const float>(scratch.activated, width),
                                             kernels.planes, quantized);
    kernels.build_tables(books.down.values.data(), quantized.data(), Positions(unit.unit_width),
                         scratch.prepared.data());
    std::fill(scratch.sums, scratch.sums + unit.hidden_size, 0);
    kernels.add_codes(unit.down, kRvqPlanes * unit.hidden_size, Positions(unit.unit_width),
                      unit.hidden_size, scratch.prepared.data(), scratch.sums);
    return scale;
  }
};

struct TcqArithmetic {
  const TcqKernels& kernels;
  const InputRotation& rotation;

  void GateUp(const CodedUnit& unit, const TcqPreparedRow& row, int64_t* sums) const {
    const TcqShape shape = TcqShapeOf(2 * unit.unit_width, unit.hidden_size);
    std::fill(sums, sums + shape.rows, row.offset);
    kernels.add_codes(shape, unit.gate_up, row.words, sums);
  }
  double Down(const CodedUnit& unit, const Scratch& scratch) const {
    const TcqShape shape = TcqShapeOf(unit.hidden_size, unit.unit_width);
    const auto words = static_cast<size_t>(TcqRowWords(unit.unit_width));
    const TcqPreparedRow row = PrepareTcqRow(
        rotation, kernels.planes, {scratch.activated, static_cast<size_t>(unit.unit_width)},
        scratch.prepared.first(words), std::as_writable_bytes(scratch.prepared.subspan(words)));
    std::fill(scratch.sums, scratch.sums + shape.rows, row.offset);
    kernels.add_codes(shape, unit.down, row.words, scratch.sums);
    return row.scale;
  }
};

template <typename Arithmetic, typename PreparedRow>
bool ApplyCodedUnit(const Arithmetic& arithmetic, const CodedUnit& unit, const PreparedRow& row,
                    double weight, std::span<std::byte> storage, std::span<int64_t> out) {
  const Scratch scratch = Carve(storage, unit.hidden_size, unit.unit_width);
  arithmetic.GateUp(unit, row, scratch.sums);
  ActivateUnit(unit, row.scale, scratch.sums, scratch.activated);
  const double factor = weight * arithmetic.Down(unit, scratch);
  const std::span<double> terms(scratch.terms, static_cast<size_t>(unit.hidden_size));
  MakeTerms({scratch.sums, terms.size()}, factor, unit.down_scales, terms);
  return AddFixedPoint(terms, out);
}

}  // namespace

int64_t RvqPreparedRowElements(int64_t hidden_size) {
  // The quantized row, padded to whole positions, lies behind the two tables.
  return Positions(hidden_size) * (2 * kRvqTableElements + kSubVectorSize);
}

RvqPreparedRow PrepareRvqRow(const RvqKernels& kernels, const LayerCodebooks& books,
                             std::span<const float> x, std::span<int32_t> storage) {
  const int64_t positions = Positions(static_cast<int64_t>(x.size()));
  int32_t* gate_table = storage.data();
  int32_t* up_table = gate_table + positions * kRvqTableElements;
  const std::span<int32_t> q(up_table + positions * kRvqTableElements,
                             static_cast<size_t>(positions * kSubVectorSize));
  std::fill(q.begin() + static_cast<int64_t>(x.size()), q.end(), 0);
  RvqPreparedRow row;
  row.scale = QuantizeActivations(x, kernels.planes, q.first(x.size()));
  kernels.build_tables(books.gate.values.data(), q.data(), positions, gate_table);
  kernels.build_tables(books.up.values.data(), q.data(), positions, up_table);
  row.gate_table = gate_table;
  row.up_table = up_table;
  return row;
}

int64_t ExpertScratchBytes(int64_t hidden_size, int64_t unit_width) {
  // What is prepared of tcq3 is smaller than the tables of rvq3.
  const int64_t bytes = 8 * SumsSize(hidden_size, unit_width) + 8 * hidden_size +
                        4 * Positions(unit_width) * kRvqTableElements + 8 * unit_width;
  return (bytes + 63) / 64 * 64;
}

bool ApplyRvqUnit(const RvqKernels& kernels, const CodedUnit& unit, const LayerCodebooks& books,
                  const RvqPreparedRow& row, double weight, std::span<std::byte> storage,
                  std::span<int64_t> out) {
  return ApplyCodedUnit(RvqArithmetic{kernels, books}, unit, row, weight, storage, out);
}

bool ApplyTcqUnit(const TcqKernels& kernels, const CodedUnit& unit, const InputRotation& rotation,
                  const TcqPreparedRow& row, double weight, std::span<std::byte> storage,
                  std::span<int64_t> out) {
  return ApplyCodedUnit(TcqArithmetic{kernels, rotation}, unit, row, weight, storage, out);
}

bool ApplyF32Unit(const F32Unit& unit, std::span<const float> x, double weight,
                  std::span<std::byte> storage, std::span<int64_t> out) {
  const Scratch scratch = Carve(storage, unit.hidden_size, unit.unit_width);
  for (int64_t i = 0; i < unit.unit_width; ++i) {
    const double gate = LaneDot(unit.gate + i * unit.hidden_size, x.data(), unit.hidden_size);
    const double up = LaneDot(unit.up + i * unit.hidden_size, x.data(), unit.hidden_size);
    scratch.activated[i] = ActivateGated(gate, up);
  }
  for (int64_t j = 0; j < unit.hidden_size; ++j) {
    scratch.terms[j] =
        weight * LaneDot(unit.down + j * unit.unit_width, scratch.activated, unit.unit_width);
  }
  return AddFixedPoint({scratch.terms, static_cast<size_t>(unit.hidden_size)}, out);
}

}  // namespace shoal

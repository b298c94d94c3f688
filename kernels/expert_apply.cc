#include "kernels/expert_apply.h"

#include <algorithm>
#include <cmath>

#include "kernels/activation_quant.h"
#include "kernels/fixed_point.h"
#include "kernels/lanes.h"
#include "kernels/math.h"

namespace shoal {
namespace {

int64_t Positions(int64_t cols) { return (cols + kSubVectorSize - 1) / kSubVectorSize; }

// Where the parts of a unit's scratch begin.
struct Scratch {
  int32_t* down_tables = nullptr;  // [unit_positions * 256]
  int64_t* sums = nullptr;         // [max(hidden_size, 2 * unit_width)]
  double* terms = nullptr;         // [hidden_size]
  int32_t* quantized = nullptr;    // [unit_width]
  float* activated = nullptr;      // [unit_width]
};

int64_t SumsSize(int64_t hidden_size, int64_t unit_width) {
  return std::max(hidden_size, 2 * unit_width);
}

Scratch Carve(std::span<std::byte> storage, int64_t hidden_size, int64_t unit_width) {
  Scratch scratch;
  scratch.down_tables = reinterpret_cast<int32_t*>(storage.data());
  scratch.sums =
      reinterpret_cast<int64_t*>(scratch.down_tables + Positions(unit_width) * kRvqTableElements);
  scratch.terms = reinterpret_cast<double*>(scratch.sums + SumsSize(hidden_size, unit_width));
  scratch.quantized = reinterpret_cast<int32_t*>(scratch.terms + hidden_size);
  scratch.activated = reinterpret_cast<float*>(scratch.quantized + unit_width);
  return scratch;
}

// silu(gate) * up, rounded to float once.
float Activate(double gate, double up) { return static_cast<float>(Silu(gate) * up); }

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
  row.scale = QuantizeActivations(x, q.first(x.size()));
  kernels.build_tables(books.gate.values.data(), q.data(), positions, gate_table);
  kernels.build_tables(books.up.values.data(), q.data(), positions, up_table);
  row.gate_table = gate_table;
  row.up_table = up_table;
  return row;
}

int64_t ExpertScratchBytes(int64_t hidden_size, int64_t unit_width) {
  const int64_t bytes = 8 * SumsSize(hidden_size, unit_width) + 8 * hidden_size +
                        4 * Positions(unit_width) * kRvqTableElements + 8 * unit_width;
  return (bytes + 63) / 64 * 64;
}

bool ApplyRvqUnit(const RvqKernels& kernels, const RvqUnit& unit, const LayerCodebooks& books,
                  const RvqPreparedRow& row, double weight, std::span<std::byte> storage,
                  std::span<int64_t> out) {
  const Scratch scratch = Carve(storage, unit.hidden_size, unit.unit_width);
  const int64_t width = unit.unit_width;
  int64_t* gate_sums = scratch.sums;
  int64_t* up_sums = scratch.sums + width;
  std::fill(gate_sums, gate_sums + 2 * width, 0);
  const int64_t matrix_bytes = kRvqPlanes * width;  // of a position
  const int64_t positions = Positions(unit.hidden_size);
  kernels.add_codes(unit.gate_up, 2 * matrix_bytes, positions, width, row.gate_table, gate_sums);
  kernels.add_codes(unit.gate_up + matrix_bytes, 2 * matrix_bytes, positions, width, row.up_table,
                    up_sums);
  for (int64_t i = 0; i < width; ++i) {
    const double gate =
        static_cast<double>(gate_sums[i]) * (row.scale * HalfToFloat(unit.gate_scales[i]));
    const double up =
        static_cast<double>(up_sums[i]) * (row.scale * HalfToFloat(unit.up_scales[i]));
    scratch.activated[i] = Activate(gate, up);
  }

  const std::span<int32_t> quantized(scratch.quantized, static_cast<size_t>(width));
  const double scale =
      QuantizeActivations({scratch.activated, static_cast<size_t>(width)}, quantized);
  kernels.build_tables(books.down.values.data(), quantized.data(), Positions(width),
                       scratch.down_tables);
  std::fill(scratch.sums, scratch.sums + unit.hidden_size, 0);
  kernels.add_codes(unit.down, kRvqPlanes * unit.hidden_size, Positions(width), unit.hidden_size,
                    scratch.down_tables, scratch.sums);
  const double factor = weight * scale;
  for (int64_t j = 0; j < unit.hidden_size; ++j) {
    scratch.terms[j] =
        static_cast<double>(scratch.sums[j]) * (factor * HalfToFloat(unit.down_scales[j]));
  }
  return AddFixedPoint({scratch.terms, static_cast<size_t>(unit.hidden_size)}, out);
}

bool ApplyF32Unit(const F32Unit& unit, std::span<const float> x, double weight,
                  std::span<std::byte> storage, std::span<int64_t> out) {
  const Scratch scratch = Carve(storage, unit.hidden_size, unit.unit_width);
  for (int64_t i = 0; i < unit.unit_width; ++i) {
    const double gate = LaneDot(unit.gate + i * unit.hidden_size, x.data(), unit.hidden_size);
    const double up = LaneDot(unit.up + i * unit.hidden_size, x.data(), unit.hidden_size);
    scratch.activated[i] = Activate(gate, up);
  }
  for (int64_t j = 0; j < unit.hidden_size; ++j) {
    scratch.terms[j] =
        weight * LaneDot(unit.down + j * unit.unit_width, scratch.activated, unit.unit_width);
  }
  return AddFixedPoint({scratch.terms, static_cast<size_t>(unit.hidden_size)}, out);
}

}  // namespace shoal

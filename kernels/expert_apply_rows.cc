#include "kernels/expert_apply_rows.h"

#include <algorithm>
#include <array>

#include "kernels/tcq.h"
#include "kernels/unit_steps.h"

namespace shoal {
namespace {

// Outputs whose sums are kept at a time.
constexpr int64_t kStripRows = 512;

// Where the parts of the scratch begin.
struct Scratch {
  int64_t* sums = nullptr;       // [kMostRowsTogether, max(2 * unit_width, kStripRows)]
  double* terms = nullptr;       // [kStripRows]
  std::byte* prepare = nullptr;  // TcqRowScratchBytes(unit_width)
  int32_t* words = nullptr;      // [kMostRowsTogether, TcqRowWords(unit_width)]
  float* activated = nullptr;    // [unit_width]
};

int64_t StripRows(int64_t hidden_size) { return std::min(hidden_size, kStripRows); }

int64_t SumsOfARow(int64_t hidden_size, int64_t unit_width) {
  return std::max(2 * unit_width, StripRows(hidden_size));
}

Scratch Carve(std::span<std::byte> storage, int64_t hidden_size, int64_t unit_width) {
  Scratch scratch;
  scratch.sums = reinterpret_cast<int64_t*>(storage.data());
  scratch.terms = reinterpret_cast<double*>(scratch.sums + kMostRowsTogether *
                                                               SumsOfARow(hidden_size, unit_width));
  scratch.prepare = reinterpret_cast<std::byte*>(scratch.terms + StripRows(hidden_size));
  scratch.words = reinterpret_cast<int32_t*>(scratch.prepare + TcqRowScratchBytes(unit_width));
  scratch.activated =
      reinterpret_cast<float*>(scratch.words + kMostRowsTogether * TcqRowWords(unit_width));
  return scratch;
}

// Rows of activations on their way through one matrix.
struct Rows {
  size_t size = 0;
  std::array<const int32_t*, kMostRowsTogether> words = {};
  std::array<int64_t, kMostRowsTogether> offsets = {};

  void Add(const TcqPreparedRow& row) {
    words[size] = row.words;
    offsets[size] = row.offset;
    ++size;
  }
  // sums [size, end - begin] of rows `begin` to `end` of the matrix.
  void Multiply(const TcqKernels& kernels, const TcqShape& shape, const uint8_t* codes,
                int64_t begin, int64_t end, int64_t* sums) const {
    for (size_t a = 0; a < size; ++a) {
      std::fill_n(sums + static_cast<int64_t>(a) * (end - begin), end - begin, offsets[a]);
    }
    kernels.add_codes_to_rows(shape, codes, begin, end, words.data(), static_cast<int64_t>(size),
                              sums);
  }
};

}  // namespace

int64_t ExpertRowsScratchBytes(int64_t hidden_size, int64_t unit_width) {
  const int64_t bytes = 8 * kMostRowsTogether * SumsOfARow(hidden_size, unit_width) +
                        8 * StripRows(hidden_size) + TcqRowScratchBytes(unit_width) +
                        4 * kMostRowsTogether * TcqRowWords(unit_width) + 4 * unit_width;
  return (bytes + 63) / 64 * 64;
}

bool ApplyTcqUnitToRows(const TcqKernels& kernels, const CodedUnit& unit,
                        const InputRotation& rotation, std::span<const WeightedRow> rows,
                        std::span<std::byte> storage, const AddTerms& add) {
  const int64_t width = unit.unit_width;
  const Scratch scratch = Carve(storage, unit.hidden_size, width);
  Rows inputs;
  for (const WeightedRow& row : rows) {
    inputs.Add(row.row);
  }
  const TcqShape gate_up = TcqShapeOf(2 * width, unit.hidden_size);
  inputs.Multiply(kernels, gate_up, unit.gate_up, 0, gate_up.rows, scratch.sums);

  Rows activations;
  std::array<double, kMostRowsTogether> factors = {};
  const auto words = static_cast<size_t>(TcqRowWords(width));
  for (size_t a = 0; a < rows.size(); ++a) {
    ActivateUnit(unit, rows[a].row.scale, scratch.sums + static_cast<int64_t>(a) * gate_up.rows,
                 scratch.activated);
    const TcqPreparedRow prepared =
        PrepareTcqRow(rotation, kernels.planes, {scratch.activated, static_cast<size_t>(width)},
                      {scratch.words + a * words, words},
                      {scratch.prepare, static_cast<size_t>(TcqRowScratchBytes(width))});
    factors[a] = rows[a].weight * prepared.scale;
    activations.Add(prepared);
  }

  const TcqShape down = TcqShapeOf(unit.hidden_size, width);
  bool in_range = true;
  for (int64_t begin = 0; begin < down.rows; begin += kStripRows) {
    const int64_t end = std::min(begin + kStripRows, down.rows);
    activations.Multiply(kernels, down, unit.down, begin, end, scratch.sums);
    const auto count = static_cast<size_t>(end - begin);
    for (size_t a = 0; a < rows.size(); ++a) {
      MakeTerms({scratch.sums + a * count, count}, factors[a], unit.down_scales + begin,
                {scratch.terms, count});
      in_range = add(a, begin, {scratch.terms, count}) && in_range;
    }
  }
  return in_range;
}

}  // namespace shoal

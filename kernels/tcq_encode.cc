#include "kernels/tcq_encode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/math.h"
#include "kernels/tcq_viterbi.h"

namespace shoal {
namespace {

// What row weights are multiplied with to become the search's input; 0 for a row of zeros.
std::vector<double> InputFactors(std::span<const float> weights, int64_t rows, int64_t columns) {
  std::vector<double> factors(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (const float weight : weights.subspan(r * columns, columns)) {
      squares += double{weight} * double{weight};
    }
    if (squares > 0) {
      factors[r] =
          kTcqInputScale * kTcqDeviation / std::sqrt(squares / static_cast<double>(columns));
    }
  }
  return factors;
}

int16_t SearchInput(float weight, double factor) {
  const double limit = kTcqInputLimit;
  return static_cast<int16_t>(std::nearbyint(std::clamp(weight * factor, -limit, limit)));
}

// The input of the chains of `num_groups` groups: [row, column of the group, chain].
void GatherChains(std::span<const float> weights, std::span<const double> factors, int64_t columns,
                  int64_t first_group, int64_t num_groups, std::vector<int16_t>& input) {
  std::fill(input.begin(), input.end(), 0);
  const int64_t first_column = first_group * kTcqGroupColumns;
  const int64_t count = std::min(columns - first_column, num_groups * kTcqGroupColumns);
  for (size_t r = 0; r < factors.size(); ++r) {
    const float* row = weights.data() + static_cast<int64_t>(r) * columns + first_column;
    int16_t* out = input.data() + r * kTcqGroupColumns * kTcqChains;
    for (int64_t i = 0; i < count; ++i) {
      out[i % kTcqGroupColumns * kTcqChains + i / kTcqGroupColumns] =
          SearchInput(row[i], factors[r]);
    }
  }
}

// Packs the symbols of a row of one group, [column of the group, chain].
uint32_t PackRow(const uint8_t* symbols) {
  uint32_t bits = 0;
  for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
    bits |= uint32_t{symbols[t * kTcqChains]} << (kTcqSymbolBits * t);
  }
  return bits;
}

void StoreChains(const TcqShape& shape, int64_t first_group, int64_t num_groups,
                 const std::vector<uint8_t>& symbols, std::span<uint8_t> codes) {
  for (int64_t group = first_group; group < first_group + num_groups; ++group) {
    for (int64_t r = 0; r < shape.rows; ++r) {
      const uint32_t bits =
          PackRow(symbols.data() + r * kTcqGroupColumns * kTcqChains + (group - first_group));
      for (int64_t plane = 0; plane < kTcqPlanes; ++plane) {
        codes[shape.ByteOf(group, r) + plane * shape.rows * shape.bundle_groups] =
            static_cast<uint8_t>(bits >> (8 * plane));
      }
    }
  }
}

// The scale of least squared error for the values of a row.
uint16_t FitScale(std::span<const float> weights, std::span<const int8_t> values) {
  double dot = 0;
  double norm = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double value = values[i];
    dot += double{weights[i]} * value;
    norm += value * value;
  }
  // One that is not positive cannot be better than zeros; what float16 cannot hold becomes its infinity.
  constexpr double kBeyondHalf = 1e6;
  const double scale = norm > 0 ? dot / norm : 0.0;
  return scale > 0 ? FloatToHalf(static_cast<float>(std::min(scale, kBeyondHalf))) : 0;
}

void FitScales(const TcqShape& shape, std::span<const float> weights, int64_t columns,
               std::span<const uint8_t> codes, std::span<uint16_t> scales) {
  std::vector<int8_t> values(static_cast<size_t>(shape.padded_columns()));
  for (int64_t r = 0; r < shape.rows; ++r) {
    DecodeTcqRow(shape, codes, r, values);
    scales[r] = FitScale(weights.subspan(r * columns, columns), values);
  }
}

// The integer values of a row of one group.
void DecodeGroup(const TcqShape& shape, std::span<const uint8_t> codes, int64_t group, int64_t row,
                 int8_t* out) {
  const int64_t plane_bytes = shape.rows * shape.bundle_groups;
  const int64_t first = shape.ByteOf(group, row);
  // The last byte of the row before, and then this row's bits.
  uint32_t bits =
      row > 0 ? codes[first + (kTcqPlanes - 1) * plane_bytes - shape.bundle_groups] : kTcqStart;
  for (int64_t plane = 0; plane < kTcqPlanes; ++plane) {
    bits |= uint32_t{codes[first + plane * plane_bytes]} << (8 * plane + 8);
  }
  for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
    const uint32_t window = bits >> (kTcqSymbolBits * (t + 1)) & (kTcqWindows - 1);
    out[t] = static_cast<int8_t>(TcqValue(window));
  }
}

// weights - coded of a group, [row, column of the group], with the scales that the search went by.
void ErrorsOfGroup(const TcqShape& shape, std::span<const uint8_t> codes, int64_t group,
                   std::span<const float> weights, std::span<const double> factors,
                   std::span<float> errors) {
  const auto columns = static_cast<int64_t>(weights.size()) / shape.rows;
  for (int64_t r = 0; r < shape.rows; ++r) {
    int8_t values[kTcqGroupColumns];
    DecodeGroup(shape, codes, group, r, values);
    const double scale = factors[r] > 0 ? kTcqInputScale / factors[r] : 0;
    for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
      const float weight = weights[r * columns + group * kTcqGroupColumns + t];
      errors[r * kTcqGroupColumns + t] = static_cast<float>(double{weight} - scale * values[t]);
    }
  }
}

}  // namespace

void EncodeTcq(const TcqShape& shape, std::span<const float> weights, int64_t columns,
               std::span<uint16_t> scales, std::span<uint8_t> codes) {
  const std::vector<double> factors = InputFactors(weights, shape.rows, columns);
  const int64_t steps = shape.rows * kTcqGroupColumns;
  std::vector<int16_t> input(static_cast<size_t>(steps * kTcqChains));
  std::vector<uint8_t> symbols(input.size());
  TcqViterbi viterbi;
  const int64_t groups = shape.bundles * shape.bundle_groups;
  for (int64_t group = 0; group < groups; group += kTcqChains) {
    const int64_t count = std::min(groups - group, kTcqChains);
    GatherChains(weights, factors, columns, group, count, input);
    viterbi.Search(input.data(), steps, symbols.data());
    StoreChains(shape, group, count, symbols, codes);
  }
  FitScales(shape, weights, columns, codes, scales);
}

void EncodeTcqWithFeedback(const TcqShape& shape, const ErrorFeedback& feedback,
                           std::span<float> weights, std::span<uint16_t> scales,
                           std::span<uint8_t> codes) {
  const int64_t columns = feedback.columns();
  const std::vector<double> factors = InputFactors(weights, shape.rows, columns);
  const std::vector<float> original(weights.begin(), weights.end());
  const int64_t steps = shape.rows * kTcqGroupColumns;
  std::vector<int16_t> input(static_cast<size_t>(steps * kTcqChains));
  std::vector<uint8_t> symbols(input.size());
  std::vector<float> errors(static_cast<size_t>(steps));
  TcqViterbi viterbi;
  for (int64_t group = 0; group < shape.bundles * shape.bundle_groups; ++group) {
    GatherChains(weights, factors, columns, group, 1, input);
    viterbi.Search(input.data(), steps, symbols.data());
    StoreChains(shape, group, 1, symbols, codes);
    if ((group + 1) * kTcqGroupColumns < columns) {
      ErrorsOfGroup(shape, codes, group, original, factors, errors);
      feedback.Spread(group, errors, weights);
    }
  }
  FitScales(shape, weights, columns, codes, scales);
}

void DecodeTcqRow(const TcqShape& shape, std::span<const uint8_t> codes, int64_t row,
                  std::span<int8_t> out) {
  for (int64_t group = 0; group < shape.bundles * shape.bundle_groups; ++group) {
    DecodeGroup(shape, codes, group, row, out.data() + group * kTcqGroupColumns);
  }
}

}  // namespace shoal

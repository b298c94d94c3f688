#include "kernels/rvq_encode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/math.h"
#include "kernels/rvq_beam.h"

namespace shoal {
namespace {

// Integer sum of the entries of one code, element d.
int32_t CodeValue(const RvqCodebook& book, uint32_t code, int d) {
  int32_t sum = 0;
  for (int stage = 0; stage < kRvqStages; ++stage) {
    sum += book.entry(stage, RvqIndex(code, stage))[d];
  }
  return sum;
}

RvqFloatBook ToFloatBook(const RvqCodebook& book, float grid) {
  RvqFloatBook result;
  for (size_t i = 0; i < result.size(); ++i) {
    result[i] = grid * static_cast<float>(book.values[i]);
  }
  return result;
}

}  // namespace

struct RvqEncoder::Tables {
  RvqBeamSearch search;
};

RvqEncoder::RvqEncoder(const RvqCodebook& book, float grid, int beam)
    : book_(book),
      grid_(grid),
      tables_(
          std::make_shared<const Tables>(Tables{RvqBeamSearch(ToFloatBook(book, grid), beam)})) {}

// A row while it is encoded.
struct RvqEncoder::RowSums {
  double rms = 0;  // of its weights; 0 where they are zero
  // Of the weights, as the search saw them, with their values, and of these with themselves.
  double dot = 0;
  double norm = 0;

  static RowSums Of(std::span<const float> row) {
    double squares = 0;
    for (const float value : row) {
      squares += double{value} * double{value};
    }
    RowSums sums;
    sums.rms = std::sqrt(squares / static_cast<double>(row.size()));
    return sums;
  }

  // The scale of least squared error for the codes. One that is not positive cannot be better
  // than zeros; what float16 cannot hold becomes its infinity.
  uint16_t Scale() const {
    constexpr double kBeyondHalf = 1e6;
    const double scale = norm > 0 ? dot / norm : 0.0;
    return scale > 0 ? FloatToHalf(static_cast<float>(std::min(scale, kBeyondHalf))) : 0;
  }
};

uint32_t RvqEncoder::EncodeSubVector(const float* weights, RowSums& sums) const {
  const double inverse_rms = 1.0 / sums.rms;
  float x[kSubVectorSize];
  for (int d = 0; d < kSubVectorSize; ++d) {
    x[d] = static_cast<float>(weights[d] * inverse_rms);
  }
  const uint32_t code = tables_->search.Search(x);
  for (int d = 0; d < kSubVectorSize; ++d) {
    const double value = CodeValue(book_, code, d);
    sums.dot += weights[d] * value;
    sums.norm += value * value;
  }
  return code;
}

uint16_t RvqEncoder::EncodeRow(std::span<const float> row, std::span<uint32_t> codes) const {
  RowSums sums = RowSums::Of(row);
  std::fill(codes.begin(), codes.end(), 0);
  if (sums.rms == 0) {
    return 0;
  }
  for (size_t p = 0; p < codes.size(); ++p) {
    codes[p] = EncodeSubVector(row.data() + p * kSubVectorSize, sums);
  }
  return sums.Scale();
}

void RvqEncoder::EncodeRows(const ErrorFeedback& feedback, std::span<float> rows,
                            std::span<uint32_t> codes, std::span<uint16_t> scales) const {
  const auto columns = static_cast<size_t>(feedback.columns());
  const size_t positions = columns / kSubVectorSize;
  const std::vector<float> original(rows.begin(), rows.end());
  std::vector<RowSums> sums;
  for (size_t r = 0; r < scales.size(); ++r) {
    sums.push_back(RowSums::Of(rows.subspan(r * columns, columns)));
  }
  std::fill(codes.begin(), codes.end(), 0);
  std::vector<float> errors(scales.size() * kSubVectorSize);
  for (size_t p = 0; p < positions; ++p) {
    for (size_t r = 0; r < scales.size(); ++r) {
      if (sums[r].rms == 0) {
        continue;  // and no errors
      }
      const size_t at = r * columns + p * kSubVectorSize;
      const uint32_t code = EncodeSubVector(rows.data() + at, sums[r]);
      codes[r * positions + p] = code;
      for (int d = 0; d < kSubVectorSize; ++d) {
        errors[r * kSubVectorSize + static_cast<size_t>(d)] =
            static_cast<float>(double{original[at + static_cast<size_t>(d)]} -
                               sums[r].rms * double{grid_} * CodeValue(book_, code, d));
      }
    }
    feedback.Spread(static_cast<int64_t>(p), errors, rows);
  }
  for (size_t r = 0; r < scales.size(); ++r) {
    scales[r] = sums[r].Scale();
  }
}

void DecodeRvqRow(const RvqCodebook& book, std::span<const uint32_t> codes, uint16_t scale_f16,
                  std::span<float> out) {
  const float scale = HalfToFloat(scale_f16);
  for (size_t p = 0; p < codes.size(); ++p) {
    for (int d = 0; d < kSubVectorSize; ++d) {
      out[p * kSubVectorSize + static_cast<size_t>(d)] =
          scale * static_cast<float>(CodeValue(book, codes[p], d));
    }
  }
}

void StoreRvqCode(std::span<uint8_t> planes, int64_t rows, int64_t row, uint32_t code) {
  for (int64_t plane = 0; plane < kRvqPlanes; ++plane) {
    planes[static_cast<size_t>(plane * rows + row)] = static_cast<uint8_t>(code >> (8 * plane));
  }
}

uint32_t LoadRvqCode(std::span<const uint8_t> planes, int64_t rows, int64_t row) {
  uint32_t code = 0;
  for (int64_t plane = 0; plane < kRvqPlanes; ++plane) {
    code |= static_cast<uint32_t>(planes[static_cast<size_t>(plane * rows + row)]) << (8 * plane);
  }
  return code;
}

}  // namespace shoal

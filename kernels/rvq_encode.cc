#include "kernels/rvq_encode.h"

#include <algorithm>
#include <cmath>

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
      tables_(
          std::make_shared<const Tables>(Tables{RvqBeamSearch(ToFloatBook(book, grid), beam)})) {}

uint16_t RvqEncoder::EncodeRow(std::span<const float> row, std::span<uint32_t> codes) const {
  double squares = 0;
  for (const float value : row) {
    squares += double{value} * double{value};
  }
  std::fill(codes.begin(), codes.end(), 0);
  if (squares == 0) {
    return 0;
  }
  const double inverse_rms = 1.0 / std::sqrt(squares / static_cast<double>(row.size()));
  double dot = 0;
  double norm = 0;
  for (size_t p = 0; p < codes.size(); ++p) {
    float x[kSubVectorSize];
    const float* weights = row.data() + p * kSubVectorSize;
    for (int d = 0; d < kSubVectorSize; ++d) {
      x[d] = static_cast<float>(weights[d] * inverse_rms);
    }
    codes[p] = tables_->search.Search(x);
    for (int d = 0; d < kSubVectorSize; ++d) {
      const double value = CodeValue(book_, codes[p], d);
      dot += weights[d] * value;
      norm += value * value;
    }
  }
  // The scale of least squared error for these codes. One that is not positive cannot be better
  // than zeros; what float16 cannot hold becomes its infinity.
  constexpr double kBeyondHalf = 1e6;
  const double scale = norm > 0 ? dot / norm : 0.0;
  return scale > 0 ? FloatToHalf(static_cast<float>(std::min(scale, kBeyondHalf))) : 0;
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

#include "coordinator/convert/expert_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

// One matrix's piece inside one unit, as the codec sees it: rows of `cols` weights, coded in
// `positions` sub-vectors.
struct Piece {
  int64_t rows = 0;       // stored, the padded ones included
  int64_t real_rows = 0;  // of them, rows of the model
  int64_t cols = 0;       // of the model
  int64_t positions = 0;
  int64_t source_offset = 0;   // of the first weight in the matrix
  int64_t source_stride = 0;   // from row to row
  uint64_t scales_offset = 0;  // bytes from the start of the unit
  uint64_t planes_offset = 0;
  int64_t planes_stride = 0;  // bytes from position to position
};

Piece PieceOf(const UnitLayout& layout, int64_t unit_index, int matrix) {
  const int64_t width = layout.unit_width;
  const int64_t first = unit_index * width;
  const int64_t present = std::clamp<int64_t>(layout.intermediate_size - first, 0, width);
  Piece piece;
  if (matrix == kDown) {
    piece.rows = piece.real_rows = layout.hidden_size;
    piece.cols = present;
    piece.positions = layout.unit_positions;
    piece.source_offset = first;
    piece.source_stride = layout.intermediate_size;
    piece.scales_offset = layout.scales_offset + 2 * width * sizeof(uint16_t);
    piece.planes_offset = layout.down_offset;
    piece.planes_stride = kRvqPlanes * layout.hidden_size;
    return piece;
  }
  piece.rows = width;
  piece.real_rows = present;
  piece.cols = layout.hidden_size;
  piece.positions = layout.input_positions;
  piece.source_offset = first * layout.hidden_size;
  piece.source_stride = layout.hidden_size;
  piece.scales_offset = layout.scales_offset + matrix * width * sizeof(uint16_t);
  piece.planes_offset = layout.gate_up_offset + matrix * kRvqPlanes * width;
  piece.planes_stride = 2 * kRvqPlanes * width;
  return piece;
}

std::span<uint8_t> Planes(std::span<std::byte> unit, const Piece& piece, int64_t position) {
  auto* bytes = reinterpret_cast<uint8_t*>(unit.data());
  return {bytes + piece.planes_offset + position * piece.planes_stride,
          static_cast<size_t>(kRvqPlanes * piece.rows)};
}

std::span<const uint8_t> Planes(std::span<const std::byte> unit, const Piece& piece,
                                int64_t position) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(unit.data());
  return {bytes + piece.planes_offset + position * piece.planes_stride,
          static_cast<size_t>(kRvqPlanes * piece.rows)};
}

SquaredError ErrorOf(std::span<const float> weights, std::span<const float> coded) {
  SquaredError sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double weight = weights[i];
    const double error = weight - double{coded[i]};
    sum.error += error * error;
    sum.weight += weight * weight;
  }
  return sum;
}

SquaredError EncodePiece(const Piece& piece, const RvqEncoder& encoder, const RvqCodebook& book,
                         std::span<const float> matrix, std::span<std::byte> unit) {
  std::vector<float> row(piece.positions * kSubVectorSize);  // columns that are missing stay 0
  std::vector<float> coded(row.size());
  std::vector<uint32_t> codes(piece.positions);
  SquaredError sum;
  for (int64_t r = 0; r < piece.real_rows; ++r) {
    const auto source = matrix.subspan(piece.source_offset + r * piece.source_stride, piece.cols);
    std::copy(source.begin(), source.end(), row.begin());
    const uint16_t scale = encoder.EncodeRow(row, codes);
    std::memcpy(unit.data() + piece.scales_offset + r * sizeof(scale), &scale, sizeof(scale));
    for (int64_t p = 0; p < piece.positions; ++p) {
      StoreRvqCode(Planes(unit, piece, p), piece.rows, r, codes[p]);
    }
    DecodeRvqRow(book, codes, scale, coded);
    sum += ErrorOf(source, std::span(coded).first(piece.cols));
  }
  return sum;
}

void DecodePiece(const Piece& piece, const RvqCodebook& book, std::span<const std::byte> unit,
                 std::span<float> matrix) {
  std::vector<float> row(piece.positions * kSubVectorSize);
  std::vector<uint32_t> codes(piece.positions);
  for (int64_t r = 0; r < piece.real_rows; ++r) {
    uint16_t scale = 0;
    std::memcpy(&scale, unit.data() + piece.scales_offset + r * sizeof(scale), sizeof(scale));
    for (int64_t p = 0; p < piece.positions; ++p) {
      codes[p] = LoadRvqCode(Planes(unit, piece, p), piece.rows, r);
    }
    DecodeRvqRow(book, codes, scale, row);
    std::copy_n(row.begin(), piece.cols,
                matrix.begin() + piece.source_offset + r * piece.source_stride);
  }
}

const RvqCodebook& BookOf(const LayerCodebooks& books, int matrix) {
  return matrix == kGate ? books.gate : matrix == kUp ? books.up : books.down;
}

// Where a matrix's rows lie in an f32 unit: byte offset of the first, and bytes from row to row.
struct F32Place {
  uint64_t offset = 0;
  uint64_t stride = 0;
};
F32Place F32PlaceOf(const UnitLayout& layout, int matrix) {
  if (matrix == kDown) {
    return {layout.down_offset, layout.unit_width * sizeof(float)};
  }
  const uint64_t stride = layout.hidden_size * sizeof(float);
  return {layout.gate_up_offset + matrix * layout.unit_width * stride, stride};
}

}  // namespace

double SquaredError::Relative() const { return weight > 0 ? std::sqrt(error / weight) : 0; }

ExpertWeights ExpertWeights::Sized(const UnitLayout& layout) {
  const size_t elements = static_cast<size_t>(layout.hidden_size) * layout.intermediate_size;
  ExpertWeights weights;
  for (std::vector<float>& matrix : weights.matrices) {
    matrix.resize(elements);
  }
  return weights;
}

ExpertEncoder::ExpertEncoder(const UnitLayout& layout, const std::optional<TrainedCodebooks>& books)
    : layout_(layout) {
  if (books) {
    books_ = books->books;
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      encoders_.emplace_back(BookOf(books_, matrix), books->grids[matrix], kRvqEncodeBeam);
    }
  }
}

absl::StatusOr<SquaredError> ExpertEncoder::EncodeUnit(ExpertKey key, int64_t unit_index,
                                                       const ExpertWeights& weights,
                                                       std::span<std::byte> unit) const {
  SquaredError sum;
  if (layout_.codec == ExpertCodec::kF32) {
    EncodeF32(unit_index, weights, unit);
  } else {
    sum = EncodeRvq(unit_index, weights, unit);
  }
  if (!std::isfinite(sum.error)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", key.layer, " expert ", key.expert,
        ": weights are too large for rvq3, whose row scales are float16; use --experts f32"));
  }
  SealUnit(layout_, key, unit_index, unit);
  return sum;
}

SquaredError ExpertEncoder::EncodeRvq(int64_t unit_index, const ExpertWeights& weights,
                                      std::span<std::byte> unit) const {
  SquaredError sum;
  for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
    sum += EncodePiece(PieceOf(layout_, unit_index, matrix), encoders_[matrix],
                       BookOf(books_, matrix), weights.matrices[matrix], unit);
  }
  return sum;
}

void ExpertEncoder::EncodeF32(int64_t unit_index, const ExpertWeights& weights,
                              std::span<std::byte> unit) const {
  for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
    const Piece piece = PieceOf(layout_, unit_index, matrix);
    const F32Place place = F32PlaceOf(layout_, matrix);
    const float* source = weights.matrices[matrix].data() + piece.source_offset;
    for (int64_t r = 0; r < piece.real_rows; ++r) {
      std::memcpy(unit.data() + place.offset + r * place.stride, source + r * piece.source_stride,
                  piece.cols * sizeof(float));
    }
  }
}

void DecodeUnit(const UnitLayout& layout, const LayerCodebooks& books, int64_t unit_index,
                std::span<const std::byte> unit, ExpertWeights& weights) {
  for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
    const Piece piece = PieceOf(layout, unit_index, matrix);
    if (layout.codec == ExpertCodec::kRvq3) {
      DecodePiece(piece, BookOf(books, matrix), unit, weights.matrices[matrix]);
      continue;
    }
    const F32Place place = F32PlaceOf(layout, matrix);
    float* target = weights.matrices[matrix].data() + piece.source_offset;
    for (int64_t r = 0; r < piece.real_rows; ++r) {
      std::memcpy(target + r * piece.source_stride, unit.data() + place.offset + r * place.stride,
                  piece.cols * sizeof(float));
    }
  }
}

}  // namespace shoal

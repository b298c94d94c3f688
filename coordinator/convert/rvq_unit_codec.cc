#include <algorithm>
#include <cstring>

#include "coordinator/convert/unit_codec.h"
#include "kernels/rvq_encode.h"

namespace shoal {
namespace {

// Where a matrix's codes lie in a unit.
struct RvqPlace {
  int64_t rows = 0;            // stored, the padded ones included
  int64_t positions = 0;       // sub-vectors of a row
  uint64_t scales_offset = 0;  // bytes from the start of the unit
  uint64_t planes_offset = 0;
  int64_t planes_stride = 0;  // bytes from position to position

  uint64_t PlanesAt(int64_t position) const { return planes_offset + position * planes_stride; }
  size_t planes_bytes() const { return static_cast<size_t>(kRvqPlanes * rows); }
};

RvqPlace PlaceOf(const UnitLayout& layout, int matrix) {
  const int64_t width = layout.unit_width;
  RvqPlace place;
  if (matrix == kDown) {
    place.rows = layout.hidden_size;
    place.positions = layout.unit_positions;
    place.scales_offset = layout.scales_offset + 2 * width * sizeof(uint16_t);
    place.planes_offset = layout.down_offset;
    place.planes_stride = kRvqPlanes * layout.hidden_size;
    return place;
  }
  place.rows = width;
  place.positions = layout.input_positions;
  place.scales_offset = layout.scales_offset + matrix * width * sizeof(uint16_t);
  place.planes_offset = layout.gate_up_offset + matrix * kRvqPlanes * width;
  place.planes_stride = 2 * kRvqPlanes * width;
  return place;
}

const RvqCodebook& BookOf(const LayerCodebooks& books, int matrix) {
  return matrix == kGate ? books.gate : matrix == kUp ? books.up : books.down;
}

class RvqUnitCodec final : public UnitCodec {
 public:
  RvqUnitCodec(const UnitLayout& layout, const TrainedCodebooks& books)
      : UnitCodec(layout), books_(books.books) {
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      encoders_.emplace_back(BookOf(books_, matrix), books.grids[matrix], kRvqEncodeBeam);
    }
  }

  void DecodeUnit(int64_t unit_index, std::span<const std::byte> unit,
                  ExpertWeights& weights) const override {
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      DecodeMatrix(unit_index, matrix, unit, weights.matrices[matrix]);
    }
  }

 private:
  SquaredError Encode(int64_t unit_index, const ExpertWeights& weights,
                      std::span<std::byte> unit) const override {
    SquaredError sum;
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      sum += EncodeMatrix(unit_index, matrix, weights.matrices[matrix], unit);
    }
    return sum;
  }

  SquaredError EncodeMatrix(int64_t unit_index, int matrix, std::span<const float> weights,
                            std::span<std::byte> unit) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, matrix);
    const RvqPlace place = PlaceOf(layout(), matrix);
    auto* bytes = reinterpret_cast<uint8_t*>(unit.data());
    std::vector<float> row(place.positions * kSubVectorSize);  // columns that are missing stay 0
    std::vector<float> coded(row.size());
    std::vector<uint32_t> codes(place.positions);
    SquaredError sum;
    for (int64_t r = 0; r < piece.rows; ++r) {
      const auto source = weights.subspan(piece.offset + r * piece.stride, piece.cols);
      std::copy(source.begin(), source.end(), row.begin());
      const uint16_t scale = encoders_[matrix].EncodeRow(row, codes);
      std::memcpy(bytes + place.scales_offset + r * sizeof(scale), &scale, sizeof(scale));
      for (int64_t p = 0; p < place.positions; ++p) {
        StoreRvqCode({bytes + place.PlanesAt(p), place.planes_bytes()}, place.rows, r, codes[p]);
      }
      DecodeRvqRow(BookOf(books_, matrix), codes, scale, coded);
      sum += ErrorOf(source, std::span(coded).first(piece.cols));
    }
    return sum;
  }

  void DecodeMatrix(int64_t unit_index, int matrix, std::span<const std::byte> unit,
                    std::span<float> weights) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, matrix);
    const RvqPlace place = PlaceOf(layout(), matrix);
    const auto* bytes = reinterpret_cast<const uint8_t*>(unit.data());
    std::vector<float> row(place.positions * kSubVectorSize);
    std::vector<uint32_t> codes(place.positions);
    for (int64_t r = 0; r < piece.rows; ++r) {
      uint16_t scale = 0;
      std::memcpy(&scale, bytes + place.scales_offset + r * sizeof(scale), sizeof(scale));
      for (int64_t p = 0; p < place.positions; ++p) {
        codes[p] = LoadRvqCode({bytes + place.PlanesAt(p), place.planes_bytes()}, place.rows, r);
      }
      DecodeRvqRow(BookOf(books_, matrix), codes, scale, row);
      std::copy_n(row.begin(), piece.cols, weights.begin() + piece.offset + r * piece.stride);
    }
  }

  const LayerCodebooks books_;
  std::vector<RvqEncoder> encoders_;  // gate, up, down
};

}  // namespace

std::unique_ptr<UnitCodec> MakeRvqUnitCodec(const UnitLayout& layout,
                                            const TrainedCodebooks& books) {
  return std::make_unique<RvqUnitCodec>(layout, books);
}

}  // namespace shoal

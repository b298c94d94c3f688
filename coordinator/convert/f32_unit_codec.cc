#include <cstring>

#include "coordinator/convert/unit_codec.h"

namespace shoal {
namespace {

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

class F32UnitCodec final : public UnitCodec {
 public:
  explicit F32UnitCodec(const UnitLayout& layout) : UnitCodec(layout) {}

  void DecodeUnit(int64_t unit_index, std::span<const std::byte> unit,
                  ExpertWeights& weights) const override {
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      const MatrixPiece piece = PieceOf(layout(), unit_index, matrix);
      const F32Place place = F32PlaceOf(layout(), matrix);
      float* target = weights.matrices[matrix].data() + piece.offset;
      for (int64_t r = 0; r < piece.rows; ++r) {
        std::memcpy(target + r * piece.stride, unit.data() + place.offset + r * place.stride,
                    piece.cols * sizeof(float));
      }
    }
  }

 private:
  SquaredError Encode(int64_t unit_index, const ExpertWeights& weights,
                      std::span<std::byte> unit) const override {
    for (int matrix = 0; matrix < kExpertMatrices; ++matrix) {
      const MatrixPiece piece = PieceOf(layout(), unit_index, matrix);
      const F32Place place = F32PlaceOf(layout(), matrix);
      const float* source = weights.matrices[matrix].data() + piece.offset;
      for (int64_t r = 0; r < piece.rows; ++r) {
        std::memcpy(unit.data() + place.offset + r * place.stride, source + r * piece.stride,
                    piece.cols * sizeof(float));
      }
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<UnitCodec> MakeF32UnitCodec(const UnitLayout& layout) {
  return std::make_unique<F32UnitCodec>(layout);
}

}  // namespace shoal

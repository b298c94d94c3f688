#include <cstring>

#include "coordinator/convert/unit_codec.h"
#include "kernels/input_rotation.h"
#include "kernels/math.h"
#include "kernels/tcq_encode.h"

namespace shoal {
namespace {

// A section of a unit, one matrix to the codec: gate and then up, or down.
struct TcqSection {
  TcqShape shape;
  int64_t columns = 0;
  uint64_t scales_offset = 0;  // bytes from the start of the unit
  uint64_t codes_offset = 0;
  const InputRotation* rotation = nullptr;
};

// Where rows of the model's matrix begin among those of its section.
struct SectionPart {
  int matrix = 0;
  int64_t first_row = 0;
};

class TcqUnitCodec final : public UnitCodec {
 public:
  TcqUnitCodec(const UnitLayout& layout, uint64_t seed)
      : UnitCodec(layout),
        rotations_(ExpertRotations::Of(layout.hidden_size, layout.unit_width, seed)) {}

  void DecodeUnit(int64_t unit_index, std::span<const std::byte> unit,
                  ExpertWeights& weights) const override {
    const TcqSection gate_up = GateUp();
    DecodePart(unit_index, gate_up, {kGate, 0}, unit, weights);
    DecodePart(unit_index, gate_up, {kUp, layout().unit_width}, unit, weights);
    DecodePart(unit_index, Down(), {kDown, 0}, unit, weights);
  }

 private:
  TcqSection GateUp() const {
    return {TcqShapeOf(2 * layout().unit_width, layout().hidden_size), layout().hidden_size,
            layout().scales_offset, layout().gate_up_offset, &rotations_.input};
  }
  TcqSection Down() const {
    return {TcqShapeOf(layout().hidden_size, layout().unit_width), layout().unit_width,
            layout().scales_offset + 2 * layout().unit_width * sizeof(uint16_t),
            layout().down_offset, &rotations_.unit};
  }

  SquaredError Encode(int64_t unit_index, const ExpertWeights& weights,
                      std::span<std::byte> unit) const override {
    const TcqSection gate_up = GateUp();
    std::vector<float> rotated(gate_up.shape.rows * gate_up.columns);
    Rotate(unit_index, gate_up, {kGate, 0}, weights, rotated);
    Rotate(unit_index, gate_up, {kUp, layout().unit_width}, weights, rotated);
    SquaredError sum = EncodeSection(gate_up, rotated, unit);

    const TcqSection down = Down();
    rotated.assign(down.shape.rows * down.columns, 0.0F);
    Rotate(unit_index, down, {kDown, 0}, weights, rotated);
    return sum += EncodeSection(down, rotated, unit);
  }

  // Writes the part's rows, rotated, to their places in `rotated` [section rows, columns].
  void Rotate(int64_t unit_index, const TcqSection& section, const SectionPart& part,
              const ExpertWeights& weights, std::span<float> rotated) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, part.matrix);
    const std::span<const float> matrix = weights.matrices[part.matrix];
    std::vector<float> row(section.columns);  // columns that are missing stay 0
    std::vector<double> turned(section.columns);
    for (int64_t r = 0; r < piece.rows; ++r) {
      const auto source = matrix.subspan(piece.offset + r * piece.stride, piece.cols);
      std::copy(source.begin(), source.end(), row.begin());
      section.rotation->Rotate(row, turned);
      float* out = rotated.data() + (part.first_row + r) * section.columns;
      for (int64_t i = 0; i < section.columns; ++i) {
        out[i] = static_cast<float>(turned[i] * section.rotation->normalization());
      }
    }
  }

  // The error is that of the rotated weights, which is the same.
  static SquaredError EncodeSection(const TcqSection& section, std::span<const float> rotated,
                                    std::span<std::byte> unit) {
    const TcqShape& shape = section.shape;
    const std::span<uint8_t> codes(reinterpret_cast<uint8_t*>(unit.data()) + section.codes_offset,
                                   static_cast<size_t>(shape.bytes()));
    std::vector<uint16_t> scales(shape.rows);
    EncodeTcq(shape, rotated, section.columns, scales, codes);
    std::memcpy(unit.data() + section.scales_offset, scales.data(),
                scales.size() * sizeof(uint16_t));
    std::vector<int8_t> values(shape.padded_columns());
    std::vector<float> coded(section.columns);
    SquaredError sum;
    for (int64_t r = 0; r < shape.rows; ++r) {
      DecodeTcqRow(shape, codes, r, values);
      const float scale = HalfToFloat(scales[r]);
      for (int64_t i = 0; i < section.columns; ++i) {
        coded[i] = scale * static_cast<float>(values[i]);
      }
      sum += ErrorOf(rotated.subspan(r * section.columns, section.columns), coded);
    }
    return sum;
  }

  void DecodePart(int64_t unit_index, const TcqSection& section, const SectionPart& part,
                  std::span<const std::byte> unit, ExpertWeights& weights) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, part.matrix);
    const std::span<float> matrix = weights.matrices[part.matrix];
    const std::span<const uint8_t> codes(
        reinterpret_cast<const uint8_t*>(unit.data()) + section.codes_offset,
        static_cast<size_t>(section.shape.bytes()));
    std::vector<int8_t> values(section.shape.padded_columns());
    std::vector<double> row(section.columns);
    for (int64_t r = 0; r < piece.rows; ++r) {
      uint16_t scale = 0;
      std::memcpy(&scale,
                  unit.data() + section.scales_offset + (part.first_row + r) * sizeof(scale),
                  sizeof(scale));
      DecodeTcqRow(section.shape, codes, part.first_row + r, values);
      for (int64_t i = 0; i < section.columns; ++i) {
        row[i] = double{HalfToFloat(scale)} * static_cast<double>(values[i]);
      }
      section.rotation->RotateBack(row);
      float* out = matrix.data() + piece.offset + r * piece.stride;
      for (int64_t i = 0; i < piece.cols; ++i) {
        out[i] = static_cast<float>(row[i]);
      }
    }
  }

  const ExpertRotations rotations_;
};

}  // namespace

std::unique_ptr<UnitCodec> MakeTcqUnitCodec(const UnitLayout& layout, uint64_t seed) {
  return std::make_unique<TcqUnitCodec>(layout, seed);
}

}  // namespace shoal

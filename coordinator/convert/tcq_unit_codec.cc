#include <algorithm>
#include <cstring>
#include <limits>

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

// Rows of a section as weights of the model, rotated back.
class RowDecoder {
 public:
  RowDecoder(const TcqSection& section, std::span<const std::byte> unit)
      : section_(section),
        unit_(unit),
        values_(section.shape.padded_columns()),
        rotated_(section.columns),
        row_(section.columns) {}

  // [columns]; until the next call.
  std::span<const float> Row(int64_t row) {
    const std::span<const uint8_t> codes(
        reinterpret_cast<const uint8_t*>(unit_.data()) + section_.codes_offset,
        static_cast<size_t>(section_.shape.bytes()));
    DecodeTcqRow(section_.shape, codes, row, values_);
    uint16_t scale = 0;
    std::memcpy(&scale, unit_.data() + section_.scales_offset + row * sizeof(scale), sizeof(scale));
    for (size_t i = 0; i < rotated_.size(); ++i) {
      rotated_[i] = double{HalfToFloat(scale)} * static_cast<double>(values_[i]);
    }
    section_.rotation->RotateBack(rotated_);
    for (size_t i = 0; i < row_.size(); ++i) {
      row_[i] = static_cast<float>(rotated_[i]);
    }
    return row_;
  }

 private:
  const TcqSection& section_;
  const std::span<const std::byte> unit_;
  std::vector<int8_t> values_;
  std::vector<double> rotated_;
  std::vector<float> row_;
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
    const SectionPart gate = {kGate, 0};
    const SectionPart up = {kUp, layout().unit_width};
    const SectionPart all_of_down = {kDown, 0};
    const TcqSection gate_up = GateUp();
    std::vector<float> rotated(gate_up.shape.rows * gate_up.columns);
    Rotate(unit_index, gate_up, gate, weights, rotated);
    Rotate(unit_index, gate_up, up, weights, rotated);
    EncodeSection(gate_up, rotated, unit);

    const TcqSection down = Down();
    rotated.assign(down.shape.rows * down.columns, 0.0F);
    Rotate(unit_index, down, all_of_down, weights, rotated);
    EncodeSection(down, rotated, unit);

    SquaredError sum = ErrorOfPart(unit_index, gate_up, gate, unit, weights);
    sum += ErrorOfPart(unit_index, gate_up, up, unit, weights);
    return sum += ErrorOfPart(unit_index, down, all_of_down, unit, weights);
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
        // A block's sum may be beyond float where its weights are not; what is left of it no scale can hold.
        constexpr double kLargest = std::numeric_limits<float>::max();
        out[i] = static_cast<float>(
            std::clamp(turned[i] * section.rotation->normalization(), -kLargest, kLargest));
      }
    }
  }

  static void EncodeSection(const TcqSection& section, std::span<const float> rotated,
                            std::span<std::byte> unit) {
    const std::span<uint8_t> codes(reinterpret_cast<uint8_t*>(unit.data()) + section.codes_offset,
                                   static_cast<size_t>(section.shape.bytes()));
    std::vector<uint16_t> scales(section.shape.rows);
    EncodeTcq(section.shape, rotated, section.columns, scales, codes);
    std::memcpy(unit.data() + section.scales_offset, scales.data(),
                scales.size() * sizeof(uint16_t));
  }

  SquaredError ErrorOfPart(int64_t unit_index, const TcqSection& section, const SectionPart& part,
                           std::span<const std::byte> unit, const ExpertWeights& weights) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, part.matrix);
    const std::span<const float> matrix = weights.matrices[part.matrix];
    RowDecoder decoder(section, unit);
    SquaredError sum;
    for (int64_t r = 0; r < piece.rows; ++r) {
      sum += ErrorOf(matrix.subspan(piece.offset + r * piece.stride, piece.cols),
                     decoder.Row(part.first_row + r).first(piece.cols));
    }
    return sum;
  }

  void DecodePart(int64_t unit_index, const TcqSection& section, const SectionPart& part,
                  std::span<const std::byte> unit, ExpertWeights& weights) const {
    const MatrixPiece piece = PieceOf(layout(), unit_index, part.matrix);
    const std::span<float> matrix = weights.matrices[part.matrix];
    RowDecoder decoder(section, unit);
    for (int64_t r = 0; r < piece.rows; ++r) {
      const std::span<const float> row = decoder.Row(part.first_row + r).first(piece.cols);
      std::copy(row.begin(), row.end(), matrix.begin() + piece.offset + r * piece.stride);
    }
  }

  const ExpertRotations rotations_;
};

}  // namespace

std::unique_ptr<UnitCodec> MakeTcqUnitCodec(const UnitLayout& layout, uint64_t seed) {
  return std::make_unique<TcqUnitCodec>(layout, seed);
}

}  // namespace shoal

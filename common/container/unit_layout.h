// How one expert's weights lie in a bank file: units, records, and the sections of a unit.
// docs/format.md draws it.
//
// An expert's intermediate dimension is cut into units of one width; a unit holds its rows of gate
// and up and its columns of down. Everything is little-endian. A unit is
//
//   header    32 bytes: crc32c of everything after the first 4 bytes, magic, layer, expert, unit,
//             zero (4 bytes each), size of the unit (8 bytes)
//   scales    rvq3, tcq3: float16 row scales of gate [unit_width], up [unit_width] and down
//             [hidden_size]; pad to a multiple of 64
//   gate_up   rvq3: for each position p (8 columns of the input) 3 planes of gate [unit_width]
//                   bytes, then 3 planes of up
//             tcq3: one matrix of 2 * unit_width rows, those of gate first, as kernels/tcq.h says
//             f32:  gate [unit_width, hidden_size], then up
//   down      rvq3: for each position p (8 columns of the unit) 3 planes of [hidden_size] bytes
//             tcq3: a matrix of hidden_size rows
//             f32:  [hidden_size, unit_width]
//             pad to a multiple of 64
//
// A record is one expert's units in order, padded to a multiple of 4096; records of a layer lie in
// a bank by expert number.
#ifndef SHOAL_COMMON_CONTAINER_UNIT_LAYOUT_H_
#define SHOAL_COMMON_CONTAINER_UNIT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

enum class ExpertCodec { kRvq3, kTcq3, kF32 };
absl::string_view ExpertCodecName(ExpertCodec codec);  // "rvq3", "tcq3", "f32"
// UNIMPLEMENTED for an unknown name, which it quotes.
absl::StatusOr<ExpertCodec> ExpertCodecFromName(absl::string_view name);
// Whether the codec's books are trained on the model, and so part of it.
constexpr bool HasCodebooks(ExpertCodec codec) { return codec == ExpertCodec::kRvq3; }

// A contiguous range of units, [begin, end).
struct UnitRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const UnitRange&) const = default;
};

// One expert of one MoE layer. `layer` is the model's layer index, zero-based.
struct ExpertKey {
  int64_t layer = 0;
  int64_t expert = 0;
  bool operator==(const ExpertKey&) const = default;
};

// Sizes and offsets derived from the model's sizes alone. All values in bytes unless said.
struct UnitLayout {
  ExpertCodec codec = ExpertCodec::kRvq3;
  int64_t hidden_size = 0;        // elements
  int64_t intermediate_size = 0;  // elements, before padding to whole units
  int64_t unit_width = 0;         // elements of the intermediate dimension in a unit
  int64_t num_units = 0;

  int64_t input_positions = 0;  // ceil(hidden_size / 8): sub-vectors in a row of gate or up
  int64_t unit_positions = 0;   // unit_width / 8: sub-vectors in a unit's piece of a row of down

  uint64_t scales_offset = 0;  // from the start of the unit
  uint64_t gate_up_offset = 0;
  uint64_t down_offset = 0;
  uint64_t unit_bytes = 0;    // a multiple of 64
  uint64_t record_bytes = 0;  // a multiple of 4096

  // INVALID_ARGUMENT where a size is not positive or the result would overflow.
  static absl::StatusOr<UnitLayout> Make(ExpertCodec codec, int64_t hidden_size,
                                         int64_t intermediate_size);
};

// The unit width of architecture: the largest power of two from 8 to 128 that gives at least 8
// units, else 8.
int64_t UnitWidth(int64_t moe_intermediate_size);

inline constexpr uint64_t kUnitHeaderBytes = 32;
inline constexpr uint64_t kRecordAlignment = 4096;
inline constexpr uint64_t kSectionAlignment = 64;

// The next multiple of `alignment`; `value` is far from the end of the range.
constexpr uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

// Fills in the header of a unit whose other bytes are final. unit.size() == layout.unit_bytes.
void SealUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
              std::span<std::byte> unit);

// Checks header and checksum. DATA_LOSS names layer, expert, unit and the field that differs.
absl::Status CheckUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
                       std::span<const std::byte> unit);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_UNIT_LAYOUT_H_

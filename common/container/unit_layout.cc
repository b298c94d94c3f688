#include "common/container/unit_layout.h"

#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/io/crc32c.h"
#include "kernels/rvq.h"
#include "kernels/tcq.h"

namespace shoal {
namespace {

constexpr uint32_t kUnitMagic = 0x554C4853;  // the bytes "SHLU": Shoal unit
constexpr int64_t kMaxWidth = int64_t{1} << 24;

// The first 32 bytes of a unit, little-endian.
struct UnitHeader {
  uint32_t crc32c;  // of everything after this field
  uint32_t magic;
  uint32_t layer;
  uint32_t expert;
  uint32_t unit;
  uint32_t reserved;
  uint64_t unit_bytes;
};
static_assert(sizeof(UnitHeader) == kUnitHeaderBytes);
static_assert(std::endian::native == std::endian::little,
              "headers, scales and weights are used as they lie in the file");

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

uint32_t UnitCrc(std::span<const std::byte> unit) { return Crc32c(unit.subspan(sizeof(uint32_t))); }

}  // namespace

absl::string_view ExpertCodecName(ExpertCodec codec) {
  switch (codec) {
    case ExpertCodec::kRvq3:
      return "rvq3";
    case ExpertCodec::kTcq3:
      return "tcq3";
    case ExpertCodec::kF32:
      return "f32";
  }
  return "";
}

absl::StatusOr<ExpertCodec> ExpertCodecFromName(absl::string_view name) {
  for (const ExpertCodec codec : {ExpertCodec::kRvq3, ExpertCodec::kTcq3, ExpertCodec::kF32}) {
    if (ExpertCodecName(codec) == name) {
      return codec;
    }
  }
  return absl::UnimplementedError(
      absl::StrCat("expert codec \"", name, "\"; this build has rvq3, tcq3 and f32"));
}

int64_t UnitWidth(int64_t moe_intermediate_size) {
  constexpr int64_t kMinUnits = 8;
  for (int64_t width = 128; width > 8; width /= 2) {
    if (CeilDiv(moe_intermediate_size, width) >= kMinUnits) {
      return width;
    }
  }
  return 8;
}

absl::StatusOr<UnitLayout> UnitLayout::Make(ExpertCodec codec, int64_t hidden_size,
                                            int64_t intermediate_size) {
  // With both sizes below 2^24 no product below leaves 64 bits.
  if (hidden_size < 1 || hidden_size > kMaxWidth || intermediate_size < 1 ||
      intermediate_size > kMaxWidth) {
    return absl::InvalidArgumentError(absl::StrCat("expert sizes hidden_size ", hidden_size,
                                                   " and moe_intermediate_size ", intermediate_size,
                                                   "; 1 to ", kMaxWidth, " is accepted"));
  }
  UnitLayout layout;
  layout.codec = codec;
  layout.hidden_size = hidden_size;
  layout.intermediate_size = intermediate_size;
  layout.unit_width = UnitWidth(intermediate_size);
  layout.num_units = CeilDiv(intermediate_size, layout.unit_width);
  layout.input_positions = CeilDiv(hidden_size, kSubVectorSize);
  layout.unit_positions = layout.unit_width / kSubVectorSize;

  const auto hidden = static_cast<uint64_t>(hidden_size);
  const auto width = static_cast<uint64_t>(layout.unit_width);
  layout.scales_offset = kUnitHeaderBytes;
  uint64_t scales_bytes = 0;
  uint64_t gate_up_bytes = 0;
  uint64_t down_bytes = 0;
  switch (codec) {
    case ExpertCodec::kRvq3:
      scales_bytes = (2 * width + hidden) * sizeof(uint16_t);
      gate_up_bytes = static_cast<uint64_t>(layout.input_positions) * 2 * kRvqPlanes * width;
      down_bytes = static_cast<uint64_t>(layout.unit_positions) * kRvqPlanes * hidden;
      break;
    case ExpertCodec::kTcq3:
      scales_bytes = (2 * width + hidden) * sizeof(uint16_t);
      gate_up_bytes = static_cast<uint64_t>(TcqShapeOf(2 * layout.unit_width, hidden_size).bytes());
      down_bytes = static_cast<uint64_t>(TcqShapeOf(hidden_size, layout.unit_width).bytes());
      break;
    case ExpertCodec::kF32:
      gate_up_bytes = 2 * width * hidden * sizeof(float);
      down_bytes = hidden * width * sizeof(float);
      break;
  }
  layout.gate_up_offset = AlignUp(layout.scales_offset + scales_bytes, kSectionAlignment);
  layout.down_offset = layout.gate_up_offset + gate_up_bytes;
  layout.unit_bytes = AlignUp(layout.down_offset + down_bytes, kSectionAlignment);
  layout.record_bytes =
      AlignUp(static_cast<uint64_t>(layout.num_units) * layout.unit_bytes, kRecordAlignment);
  return layout;
}

void SealUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
              std::span<std::byte> unit) {
  UnitHeader header = {};
  header.magic = kUnitMagic;
  header.layer = static_cast<uint32_t>(key.layer);
  header.expert = static_cast<uint32_t>(key.expert);
  header.unit = static_cast<uint32_t>(unit_index);
  header.unit_bytes = layout.unit_bytes;
  std::memcpy(unit.data(), &header, sizeof(header));
  const uint32_t crc = UnitCrc(unit);
  std::memcpy(unit.data(), &crc, sizeof(crc));
}

absl::Status CheckUnit(const UnitLayout& layout, ExpertKey key, int64_t unit_index,
                       std::span<const std::byte> unit) {
  const std::string where =
      absl::StrCat("layer ", key.layer, " expert ", key.expert, " unit ", unit_index);
  if (unit.size() != layout.unit_bytes) {
    return absl::DataLossError(
        absl::StrCat(where, ": ", unit.size(), " bytes where a unit has ", layout.unit_bytes));
  }
  UnitHeader header;
  std::memcpy(&header, unit.data(), sizeof(header));
  const uint32_t crc = UnitCrc(unit);
  if (header.crc32c != crc) {
    return absl::DataLossError(absl::StrCat(where, ": checksum ", absl::Hex(crc, absl::kZeroPad8),
                                            " where the unit's header says ",
                                            absl::Hex(header.crc32c, absl::kZeroPad8)));
  }
  if (header.magic != kUnitMagic) {
    return absl::DataLossError(
        absl::StrCat(where, ": magic ", absl::Hex(header.magic), " is not that of a unit"));
  }
  if (header.unit_bytes != layout.unit_bytes || header.reserved != 0) {
    return absl::DataLossError(absl::StrCat(where, ": the header's unit size ", header.unit_bytes,
                                            " and reserved field ", header.reserved, " are not ",
                                            layout.unit_bytes, " and 0, as this layout has them"));
  }
  if (header.layer != key.layer || header.expert != key.expert || header.unit != unit_index) {
    return absl::DataLossError(absl::StrCat(where, ": the file holds layer ", header.layer,
                                            " expert ", header.expert, " unit ", header.unit,
                                            " in its place"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

// A unit's bytes as the kernels want them.
#ifndef SHOAL_EXPERT_NODE_UNIT_VIEW_H_
#define SHOAL_EXPERT_NODE_UNIT_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/container/unit_layout.h"
#include "kernels/expert_apply.h"

namespace shoal {

// Views of one unit of a record of that layout, whose codec is the function's; a coded unit is one of rvq3 or
// tcq3. `unit` is layout.unit_bytes, aligned to 64, and outlives the view.
inline CodedUnit ViewCodedUnit(const UnitLayout& layout, std::span<const std::byte> unit) {
  const auto* scales = reinterpret_cast<const uint16_t*>(unit.data() + layout.scales_offset);
  CodedUnit view;
  view.hidden_size = layout.hidden_size;
  view.unit_width = layout.unit_width;
  view.gate_scales = scales;
  view.up_scales = scales + layout.unit_width;
  view.down_scales = scales + 2 * layout.unit_width;
  view.gate_up = reinterpret_cast<const uint8_t*>(unit.data() + layout.gate_up_offset);
  view.down = reinterpret_cast<const uint8_t*>(unit.data() + layout.down_offset);
  return view;
}

inline F32Unit ViewF32Unit(const UnitLayout& layout, std::span<const std::byte> unit) {
  F32Unit view;
  view.hidden_size = layout.hidden_size;
  view.unit_width = layout.unit_width;
  view.gate = reinterpret_cast<const float*>(unit.data() + layout.gate_up_offset);
  view.up = view.gate + layout.unit_width * layout.hidden_size;
  view.down = reinterpret_cast<const float*>(unit.data() + layout.down_offset);
  return view;
}

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_UNIT_VIEW_H_

// A unit of an expert in 3 bits a weight, as it lies in memory.
#ifndef SHOAL_KERNELS_CODED_UNIT_H_
#define SHOAL_KERNELS_CODED_UNIT_H_

#include <cstdint>

namespace shoal {

// A unit's sections (common/container/unit_layout.h). Pointers may have any alignment of their
// type; they belong to the caller. The codec is rvq3 or tcq3.
struct CodedUnit {
  int64_t hidden_size = 0;
  int64_t unit_width = 0;
  const uint16_t* gate_scales = nullptr;  // float16 [unit_width]
  const uint16_t* up_scales = nullptr;    // float16 [unit_width]
  const uint16_t* down_scales = nullptr;  // float16 [hidden_size]
  // rvq3: [ceil(hidden_size / 8)] x (3 planes gate, 3 planes up) x [unit_width]
  // tcq3: one matrix of 2 * unit_width rows, those of gate first (TcqShapeOf(2 * unit_width, hidden_size))
  const uint8_t* gate_up = nullptr;
  // rvq3: [unit_width / 8] x 3 planes x [hidden_size]
  // tcq3: TcqShapeOf(hidden_size, unit_width)
  const uint8_t* down = nullptr;
};

}  // namespace shoal

#endif  // SHOAL_KERNELS_CODED_UNIT_H_

// A matrix <-> the codes of tcq3 (kernels/tcq.h).
#ifndef SHOAL_KERNELS_TCQ_ENCODE_H_
#define SHOAL_KERNELS_TCQ_ENCODE_H_

#include <cstdint>
#include <span>

#include "kernels/tcq.h"

namespace shoal {

// Encodes finite weights [shape.rows, columns], rotated already, into codes (shape.bytes()). scales [rows] are
// float16: those of least squared error for the codes, 0 for a row of zeros or one whose scale underflows,
// infinity for one that float16 cannot hold, which the caller refuses. Every CPU gives the same bytes.
void EncodeTcq(const TcqShape& shape, std::span<const float> weights, int64_t columns,
               std::span<uint16_t> scales, std::span<uint8_t> codes);

// The integer values of one row: out [shape.padded_columns()].
void DecodeTcqRow(const TcqShape& shape, std::span<const uint8_t> codes, int64_t row,
                  std::span<int8_t> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_ENCODE_H_

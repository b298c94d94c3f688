// A matrix <-> the codes of tcq3 (kernels/tcq.h).
#ifndef SHOAL_KERNELS_TCQ_ENCODE_H_
#define SHOAL_KERNELS_TCQ_ENCODE_H_

#include <cstdint>
#include <span>

#include "kernels/error_feedback.h"
#include "kernels/tcq.h"

namespace shoal {

// Encodes finite weights [shape.rows, columns], rotated already, into codes (shape.bytes()). scales [rows] are
// float16: those of least squared error for the codes, 0 for a row of zeros or one whose scale underflows,
// infinity for one that float16 cannot hold, which the caller refuses. Every CPU gives the same bytes.
void EncodeTcq(const TcqShape& shape, std::span<const float> weights, int64_t columns,
               std::span<uint16_t> scales, std::span<uint8_t> codes);

// The same where what a group of columns loses is fed back to those after it (kernels/error_feedback.h), one group at a time, which takes
// up to kTcqChains times as long. feedback.columns() is shape.padded_columns() or less; `weights` [shape.rows,
// feedback.columns()] are changed to what each group was encoded as, which the scales are fitted to. With feedback
// that is zero: the bytes of EncodeTcq.
void EncodeTcqWithFeedback(const TcqShape& shape, const ErrorFeedback& feedback,
                           std::span<float> weights, std::span<uint16_t> scales,
                           std::span<uint8_t> codes);

// The integer values of one row: out [shape.padded_columns()].
void DecodeTcqRow(const TcqShape& shape, std::span<const uint8_t> codes, int64_t row,
                  std::span<int8_t> out);

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_ENCODE_H_

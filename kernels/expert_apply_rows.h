// One tcq3 unit applied to several activation rows: for prefill, where many rows choose an expert. Codes are
// decoded once for all rows. The terms are those of ApplyTcqUnit (kernels/expert_apply.h) to the bit.
#ifndef SHOAL_KERNELS_EXPERT_APPLY_ROWS_H_
#define SHOAL_KERNELS_EXPERT_APPLY_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/coded_unit.h"
#include "kernels/input_rotation.h"
#include "kernels/tcq_kernels.h"
#include "kernels/tcq_row.h"

namespace shoal {

struct WeightedRow {
  TcqPreparedRow row;
  double weight = 0;
};

// Rows at a time: so many that decoding is a small part, and their sums stay in the nearest two caches.
inline constexpr int64_t kMostRowsTogether = 32;

// Gets what the unit gives for rows[row], as terms of outputs `first` and on, each output once; false where one
// is not finite or out of range.
using AddTerms = std::function<bool(size_t row, int64_t first, std::span<const double> terms)>;

// Bytes of scratch that one thread needs.
int64_t ExpertRowsScratchBytes(int64_t hidden_size, int64_t unit_width);

// Hands all terms of `rows`, of which there are 1 to kMostRowsTogether, to `add`. Returns false where `add`
// once did. `scratch` has ExpertRowsScratchBytes(...), aligned to 64, and belongs to one thread at a time.
// `rotation` is that of a unit.
bool ApplyTcqUnitToRows(const TcqKernels& kernels, const CodedUnit& unit,
                        const InputRotation& rotation, std::span<const WeightedRow> rows,
                        std::span<std::byte> scratch, const AddTerms& add);

}  // namespace shoal

#endif  // SHOAL_KERNELS_EXPERT_APPLY_ROWS_H_

// Training of codebooks and encoding of rows. Deterministic: the same input gives the same bytes on
// every CPU and for any number of threads (all sums have a fixed order; threads live above this
// file).
#ifndef SHOAL_KERNELS_RVQ_ENCODE_H_
#define SHOAL_KERNELS_RVQ_ENCODE_H_

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/error_feedback.h"
#include "kernels/rvq.h"

namespace shoal {

// What the converter trains and encodes with: more of any of these gained less than 1 % of the
// squared error on Gaussian weights (docs/measurements.md).
inline constexpr int64_t kRvqTrainVectors = 8192;
inline constexpr int kRvqTrainIterations = 6;
inline constexpr int kRvqTrainBeam = 8;
inline constexpr int kRvqEncodeBeam = 8;

struct RvqTrainOptions {
  uint64_t seed = 0;
  int iterations = 0;  // of beam encoding and joint refit
  int beam = 8;
};

// Trains one codebook on `num_vectors` sub-vectors (row-major [num_vectors, 8]), each already
// divided by its row's scale (root mean square 1 over the row). Residual k-means gives the start;
// then beam encoding and a joint least-squares refit of all stages alternate; the result is rounded
// to the int8 grid. The integer book is in units of `*grid`: real value = grid * book. Needs
// num_vectors >= 1; with few vectors entries repeat.
RvqCodebook TrainRvqCodebook(std::span<const float> vectors, int64_t num_vectors,
                             const RvqTrainOptions& options, float* grid);

// Encoder for one book: holds the Gram tables of its stages.
// Thread-safe: everything is const.
class RvqEncoder {
 public:
  RvqEncoder(const RvqCodebook& book, float grid, int beam);

  // Encodes one row (or a unit's piece of one) of `row.size()` weights, a multiple of 8: codes[p]
  // is the 24-bit word of sub-vector p. Chooses and returns the float16 row scale (bits) that, with
  // these codes, minimises the squared error (refit after encoding; the scale folds the grid in, so
  // weight = scale * integer sum). A row of zeros, or one whose scale underflows float16, gets
  // scale 0; one whose scale float16 cannot hold gets infinity, which the caller refuses.
  uint16_t EncodeRow(std::span<const float> row, std::span<uint32_t> codes) const;

  // The same for rows [scales.size(), feedback.columns()], position by position, where what a sub-vector loses is fed
  // back to those after it (kernels/error_feedback.h). `rows` are changed to what each sub-vector was encoded as, which
  // the scales are fitted to; codes [scales.size(), positions]. With feedback that is zero: the codes and scales of EncodeRow.
  void EncodeRows(const ErrorFeedback& feedback, std::span<float> rows, std::span<uint32_t> codes,
                  std::span<uint16_t> scales) const;

 private:
  struct Tables;  // float books and Gram tables, shared by copies
  struct RowSums;
  // The code of the sub-vector weights[8]; adds to `sums`, whose rms is above 0.
  uint32_t EncodeSubVector(const float* weights, RowSums& sums) const;

  RvqCodebook book_;
  float grid_;  // what 1 of the book stands for, where the row's rms is 1
  std::shared_ptr<const Tables> tables_;
};

// Reconstructs a row: out[8p + d] = scale * integer sum, in float. out.size() == 8 * codes.size().
void DecodeRvqRow(const RvqCodebook& book, std::span<const uint32_t> codes, uint16_t scale_f16,
                  std::span<float> out);

// Writes / reads sub-vector `position`'s code of row `row` into planes laid out as kernels/rvq.h
// says: `planes` is the position's three planes, each `rows` bytes.
void StoreRvqCode(std::span<uint8_t> planes, int64_t rows, int64_t row, uint32_t code);
uint32_t LoadRvqCode(std::span<const uint8_t> planes, int64_t rows, int64_t row);

}  // namespace shoal

#endif  // SHOAL_KERNELS_RVQ_ENCODE_H_

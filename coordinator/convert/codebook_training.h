// Codebooks of one MoE layer, trained on a sample of its own experts.
#ifndef SHOAL_COORDINATOR_CONVERT_CODEBOOK_TRAINING_H_
#define SHOAL_COORDINATOR_CONVERT_CODEBOOK_TRAINING_H_

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/unit_layout.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/source_model.h"
#include "kernels/rvq.h"

namespace shoal {

// The books, and the grid of each that only the encoder needs (kernels/rvq_encode.h).
struct TrainedCodebooks {
  LayerCodebooks books;
  std::array<float, kExpertMatrices> grids{};
};

// Reads at least 12 of the layer's experts (all where there are fewer), spread evenly, takes a
// stratified sample of sub-vectors from each, divides each by the root mean square of the row it
// came from (for down: of the row's piece in one unit, which is what has a scale of its own), and
// trains one book a matrix kind. The sample depends on the seed, the layer and the sizes; nothing
// depends on the number of threads. Matrices that are zero throughout get a book of zeros. Errors
// are those of ReadElements.
absl::StatusOr<TrainedCodebooks> TrainLayerCodebooks(const Checkpoint& checkpoint,
                                                     const ModelConfig& config,
                                                     const UnitLayout& layout, int64_t layer,
                                                     uint64_t seed, ThreadPool& pool);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_CODEBOOK_TRAINING_H_

#include "coordinator/convert/codebook_training.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/status/status_macros.h"
#include "coordinator/convert/parallel_status.h"
#include "kernels/rvq_encode.h"
#include "kernels/split_mix.h"

namespace shoal {
namespace {

constexpr int64_t kMinSampledExperts = 12;

uint64_t MixedSeed(uint64_t seed, int64_t layer, int64_t matrix, int64_t expert) {
  uint64_t mixed = SplitMix64(seed, 0);
  for (const int64_t part : {layer, matrix, expert}) {
    mixed = SplitMix64(mixed ^ static_cast<uint64_t>(part), 0);
  }
  return mixed;
}

// The rows that have a scale of their own: whole rows of gate and up, one unit's piece of a row of
// down.
struct ScaledRows {
  int64_t num_rows = 0;
  int64_t num_pieces = 0;  // per row
  int64_t row_cols = 0;
  int64_t piece_cols = 0;  // the last piece of a row may have fewer
  int64_t positions = 0;   // sub-vectors of a piece, padded

  int64_t num_vectors() const { return num_rows * num_pieces * positions; }
};

ScaledRows RowsOf(const UnitLayout& layout, int matrix) {
  if (matrix == kDown) {
    return {layout.hidden_size, layout.num_units, layout.intermediate_size, layout.unit_width,
            layout.unit_positions};
  }
  return {layout.intermediate_size, 1, layout.hidden_size, layout.hidden_size,
          layout.input_positions};
}

// Appends sub-vector `index` of the matrix, divided by its piece's root mean square; nothing where
// the piece is zero.
void AppendVector(const ScaledRows& rows, std::span<const float> matrix, int64_t index,
                  std::vector<float>& out) {
  const int64_t position = index % rows.positions;
  const int64_t piece = index / rows.positions % rows.num_pieces;
  const int64_t row = index / rows.positions / rows.num_pieces;
  const int64_t first = piece * rows.piece_cols;
  const int64_t cols = std::min(rows.piece_cols, rows.row_cols - first);
  const auto weights = matrix.subspan(row * rows.row_cols + first, cols);
  double sum = 0;
  for (const float weight : weights) {
    sum += double{weight} * double{weight};
  }
  if (sum == 0) {
    return;
  }
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(rows.positions * kSubVectorSize));
  for (int64_t i = position * kSubVectorSize; i < (position + 1) * kSubVectorSize; ++i) {
    out.push_back(i < cols ? static_cast<float>(weights[i] * scale) : 0.0F);
  }
}

// `count` sub-vectors, one from each of as many equal strata, so that no row or column is favoured.
std::vector<float> SampleVectors(const ScaledRows& rows, std::span<const float> matrix,
                                 int64_t count, uint64_t seed) {
  const int64_t total = rows.num_vectors();
  count = std::min(count, total);
  SplitMix64Stream random(seed);
  std::vector<float> vectors;
  vectors.reserve(count * kSubVectorSize);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = total / count * i + std::min(i, total % count);
    const int64_t size = total / count + (i < total % count ? 1 : 0);
    AppendVector(rows, matrix, begin + static_cast<int64_t>(random.Next() % size), vectors);
  }
  return vectors;
}

struct TrainedBook {
  RvqCodebook book;
  float grid = 1;
};

TrainedBook TrainBook(std::vector<float> vectors, uint64_t seed) {
  TrainedBook trained;
  if (vectors.empty()) {
    return trained;
  }
  // The training wants at least as many vectors as a stage has entries; a matrix with fewer repeats
  // what it has.
  const size_t distinct = vectors.size();
  while (vectors.size() < size_t{kCodebookEntries} * kSubVectorSize) {
    for (size_t i = 0; i < distinct; ++i) {
      vectors.push_back(vectors[i]);
    }
  }
  RvqTrainOptions options;
  options.seed = seed;
  options.iterations = kRvqTrainIterations;
  options.beam = kRvqTrainBeam;
  const auto num_vectors = static_cast<int64_t>(vectors.size() / kSubVectorSize);
  trained.book = TrainRvqCodebook(vectors, num_vectors, options, &trained.grid);
  return trained;
}

}  // namespace

absl::StatusOr<TrainedCodebooks> TrainLayerCodebooks(const Checkpoint& checkpoint,
                                                     const ModelConfig& config,
                                                     const UnitLayout& layout, int64_t layer,
                                                     uint64_t seed, ThreadPool& pool) {
  const int64_t num_experts = config.moe.num_experts;
  const int64_t num_sampled = std::min(num_experts, kMinSampledExperts);
  const int64_t vectors_per_expert = (kRvqTrainVectors + num_sampled - 1) / num_sampled;
  std::vector<std::vector<float>> samples(num_sampled * kExpertMatrices);
  SHOAL_RETURN_IF_ERROR(ParallelForStatus(
      pool, num_sampled * kExpertMatrices, [&](int64_t task, int /*worker*/) -> absl::Status {
        const int64_t matrix = task / num_sampled;
        const int64_t expert = task % num_sampled * num_experts / num_sampled;
        SHOAL_ASSIGN_OR_RETURN(const auto tensors, FindExpert(checkpoint, config, {layer, expert}));
        const SourceTensor& tensor = tensors[matrix];
        std::vector<float> weights(tensor.info.num_elements());
        std::vector<std::byte> raw;
        SHOAL_RETURN_IF_ERROR(
            ReadElements(checkpoint, tensor.name, tensor.info, 0, weights, raw, nullptr));
        samples[task] = SampleVectors(RowsOf(layout, static_cast<int>(matrix)), weights,
                                      vectors_per_expert, MixedSeed(seed, layer, matrix, expert));
        return absl::OkStatus();
      }));

  std::array<TrainedBook, kExpertMatrices> trained;
  pool.ParallelFor(kExpertMatrices, [&](int64_t matrix, int /*worker*/) {
    std::vector<float> vectors;
    for (int64_t i = 0; i < num_sampled; ++i) {
      const std::vector<float>& sample = samples[matrix * num_sampled + i];
      vectors.insert(vectors.end(), sample.begin(), sample.end());
    }
    trained[matrix] = TrainBook(std::move(vectors), MixedSeed(seed, layer, matrix, num_experts));
  });
  return TrainedCodebooks{{trained[kGate].book, trained[kUp].book, trained[kDown].book},
                          {trained[kGate].grid, trained[kUp].grid, trained[kDown].grid}};
}

}  // namespace shoal

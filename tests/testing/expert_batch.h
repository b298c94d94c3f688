// Rows and choices for tests of experts on SmallCheckpoint.
#ifndef SHOAL_TESTS_TESTING_EXPERT_BATCH_H_
#define SHOAL_TESTS_TESTING_EXPERT_BATCH_H_

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/container/expert_slice.h"
#include "expert_node/expert_backend.h"

namespace shoal::testing {

// Sizes of SmallCheckpoint's second MoE layer.
inline constexpr int64_t kLayer = 2;
inline constexpr int64_t kNumExperts = 14;
inline constexpr int64_t kPerToken = 3;
inline constexpr int64_t kHiddenSize = 36;
inline constexpr int64_t kNumUnits = 3;
inline constexpr ExpertSlice kWhole{{0, kNumUnits}, {0, kNumExperts}};

// These units of all experts.
constexpr ExpertSlice Units(int64_t begin, int64_t end) { return {{begin, end}, {0, kNumExperts}}; }

// What stays alive while a batch shows it.
struct TestBatch {
  std::vector<float> rows;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t num_rows = 0;

  ExpertBackend::Batch View() const { return {kLayer, num_rows, rows, ids, weights}; }
};

inline TestBatch MakeBatch(int64_t num_rows) {
  TestBatch batch;
  batch.num_rows = num_rows;
  for (int64_t i = 0; i < num_rows * kHiddenSize; ++i) {
    batch.rows.push_back(static_cast<float>(std::sin(static_cast<double>(i) * 1.7) * 2.0));
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t slot = 0; slot < kPerToken; ++slot) {
      batch.ids.push_back(static_cast<int32_t>((row * 5 + slot * 4) % kNumExperts));
      batch.weights.push_back(0.3F + 0.2F * static_cast<float>(slot));
    }
  }
  return batch;
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_TESTING_EXPERT_BATCH_H_

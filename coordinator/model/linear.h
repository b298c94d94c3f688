// Linear layers of the trunk over the rows of a chunk, spread over the thread pool.
#ifndef SHOAL_COORDINATOR_MODEL_LINEAR_H_
#define SHOAL_COORDINATOR_MODEL_LINEAR_H_

#include <cstdint>
#include <functional>
#include <span>

#include "common/sync/thread_pool.h"
#include "coordinator/model/workspace.h"
#include "kernels/matrix.h"
#include "kernels/matvec.h"

namespace shoal {

// Activation rows that several matrices are applied to: quantized at most once. Valid until the
// next LinearInput is made on the same workspace, since the quantized rows live there.
class LinearInput {
 public:
  // x is [num_rows, cols].
  LinearInput(Workspace& workspace, ThreadPool& pool, std::span<const float> x, int64_t num_rows,
              int64_t cols)
      : workspace_(workspace), pool_(pool), x_(x), num_rows_(num_rows), cols_(cols) {}

  // out[r * out_stride + i] = (w x_r)[i]. w.cols equals cols. Each element depends on its own row
  // only.
  void Apply(const Matrix& w, std::span<float> out, int64_t out_stride);
  void Apply(const Matrix& w, std::span<float> out) { Apply(w, out, w.rows); }

 private:
  void Quantize();

  Workspace& workspace_;
  ThreadPool& pool_;
  std::span<const float> x_;
  int64_t num_rows_;
  int64_t cols_;
  bool quantized_ = false;
};

// Calls task(begin, end) over pieces of [0, count): in parallel where count * cost_per_item
// (multiply-adds) is worth waking threads for, else as one piece on this thread. Never changes a
// result.
void ForPieces(ThreadPool& pool, int64_t count, int64_t cost_per_item,
               const std::function<void(int64_t begin, int64_t end)>& task);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_LINEAR_H_

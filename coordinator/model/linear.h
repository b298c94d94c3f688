// Linear layers of the trunk over the rows of a chunk, spread over the thread pool.
#ifndef SHOAL_COORDINATOR_MODEL_LINEAR_H_
#define SHOAL_COORDINATOR_MODEL_LINEAR_H_

#include <cstdint>
#include <span>

#include "coordinator/model/trunk_loops.h"
#include "coordinator/model/workspace.h"
#include "kernels/matrix.h"
#include "kernels/matvec.h"

namespace shoal {

// Activation rows that several matrices are applied to: quantized at most once. Valid until the
// next LinearInput is made on the same workspace, since the quantized rows live there.
class LinearInput {
 public:
  // x is [num_rows, cols].
  LinearInput(Workspace& workspace, const TrunkLoops& loops, std::span<const float> x,
              int64_t num_rows, int64_t cols)
      : workspace_(workspace), loops_(loops), x_(x), num_rows_(num_rows), cols_(cols) {}

  // out[r * out_stride + i] = (w x_r)[i]. w.cols equals cols. Each element depends on its own row
  // only.
  void Apply(const Matrix& w, std::span<float> out, int64_t out_stride);
  void Apply(const Matrix& w, std::span<float> out) { Apply(w, out, w.rows); }

 private:
  void Quantize();

  Workspace& workspace_;
  const TrunkLoops& loops_;
  std::span<const float> x_;
  int64_t num_rows_;
  int64_t cols_;
  bool quantized_ = false;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_LINEAR_H_

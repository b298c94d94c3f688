#include "coordinator/model/linear.h"

#include <algorithm>

namespace shoal {
namespace {

// About 20 microseconds of one core: less than that is not worth waking a thread.
constexpr int64_t kParallelCost = 200'000;

}  // namespace

void ForPieces(ThreadPool& pool, int64_t count, int64_t cost_per_item,
               const std::function<void(int64_t begin, int64_t end)>& task) {
  const int64_t threads = pool.num_threads();
  if (threads == 1 || count * cost_per_item < kParallelCost) {
    task(0, count);
    return;
  }
  // Four pieces a thread, so that a slow core does not hold up the others for long.
  const int64_t pieces = std::min(count, 4 * threads);
  pool.ParallelFor(pieces, [&](int64_t piece, int) {
    task(count * piece / pieces, count * (piece + 1) / pieces);
  });
}

void LinearInput::Quantize() {
  const int64_t row_bytes = TrunkRowBytes(cols_);
  ForPieces(pool_, num_rows_, cols_, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      workspace_.quantized_rows[static_cast<size_t>(r)] =
          QuantizeTrunkRow(x_.subspan(static_cast<size_t>(r * cols_), static_cast<size_t>(cols_)),
                           workspace_.quantized.subspan(static_cast<size_t>(r * row_bytes),
                                                        static_cast<size_t>(row_bytes)));
    }
  });
  quantized_ = true;
}

void LinearInput::Apply(const Matrix& w, std::span<float> out, int64_t out_stride) {
  const bool integer = w.type == TrunkType::kQ8 || w.type == TrunkType::kQ4;
  if (integer && !quantized_) {
    Quantize();
  }
  const MatMulInput input{num_rows_, x_.data(), workspace_.quantized_rows.data()};
  ForPieces(pool_, w.rows, num_rows_ * w.cols, [&](int64_t begin, int64_t end) {
    MatMul(w, input, begin, end, out.data(), out_stride);
  });
}

}  // namespace shoal

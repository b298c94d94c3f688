#include "coordinator/model/linear.h"

namespace shoal {
void LinearInput::Quantize() {
  const int64_t row_bytes = TrunkRowBytes(cols_);
  loops_.ForPieces(num_rows_, cols_, [&](int64_t begin, int64_t end) {
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
  loops_.ForPieces(w.rows, num_rows_ * w.cols, [&](int64_t begin, int64_t end) {
    MatMul(w, input, begin, end, out.data(), out_stride);
  });
}

}  // namespace shoal

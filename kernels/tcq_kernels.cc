#include "kernels/tcq_kernels.h"

namespace shoal {
namespace {

// The activation of a column of a bundle: byte `group` of the word of each plane.
int32_t ActivationOf(const int32_t* words, int64_t group, int64_t t) {
  int32_t q = 0;
  for (int plane = kActivationPlanes - 1; plane >= 0; --plane) {
    const auto bits = static_cast<uint32_t>(words[plane * kTcqGroupColumns + t]);
    q = q * 128 + static_cast<int8_t>(bits >> (8 * group));
  }
  return q;
}

// One group: its rows' bytes are bundle_groups apart, and the planes plane_bytes.
void AddGroup(const uint8_t* codes, int64_t rows, int64_t bundle_groups, const int32_t* q,
              int64_t* sums) {
  const int64_t plane_bytes = rows * bundle_groups;
  uint32_t bits = uint32_t{kTcqStart} << 24;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* row = codes + r * bundle_groups;
    bits = bits >> 24 | uint32_t{row[0]} << 8 | uint32_t{row[plane_bytes]} << 16 |
           uint32_t{row[2 * plane_bytes]} << 24;
    int64_t sum = 0;
    for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
      const uint32_t window = bits >> (kTcqSymbolBits * (t + 1)) & (kTcqWindows - 1);
      sum += int64_t{q[t]} * (kTcqLow[window & 15] + kTcqHigh[window >> 4]);
    }
    sums[r] += sum;
  }
}

void AddCodes(const TcqShape& shape, const uint8_t* codes, const int32_t* words, int64_t* sums) {
  for (int64_t b = 0; b < shape.bundles; ++b) {
    for (int64_t group = 0; group < shape.bundle_groups; ++group) {
      int32_t q[kTcqGroupColumns];
      for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
        q[t] = ActivationOf(words + b * kTcqBundleWords, group, t);
      }
      AddGroup(codes + b * kTcqPlanes * shape.rows * shape.bundle_groups + group, shape.rows,
               shape.bundle_groups, q, sums);
    }
  }
}

}  // namespace

const TcqKernels& TcqKernelsScalar() {
  static constexpr TcqKernels kKernels = {AddCodes};
  return kKernels;
}

const TcqKernels& TcqKernelsOf(KernelTarget target) {
  switch (target) {
    case KernelTarget::kScalar:
      break;
#if defined(__x86_64__)
    case KernelTarget::kAvx2:
      return TcqKernelsAvx2();
    case KernelTarget::kAvx512:
      return TcqKernelsAvx512();
#else
    default:
      break;
#endif
  }
  return TcqKernelsScalar();
}

}  // namespace shoal

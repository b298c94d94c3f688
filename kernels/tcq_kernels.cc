#include "kernels/tcq_kernels.h"

#include <algorithm>

namespace shoal {
namespace {

// The activation of a column of a bundle: byte `group` of the word of each plane.
template <int kPlanes>
int32_t ActivationOf(const int32_t* words, int64_t group, int64_t t) {
  int32_t q = 0;
  for (int plane = kPlanes - 1; plane >= 0; --plane) {
    const auto bits = static_cast<uint32_t>(words[plane * kTcqGroupColumns + t]);
    q = q * 128 + static_cast<int8_t>(bits >> (8 * group));
  }
  return q;
}

// Rows of activations that one row of a matrix is decoded for at a time.
constexpr int64_t kBlock = 16;

// Rows `begin` to `end` of group `group` with up to kBlock rows of activations: q [num_rows][8].
void AddGroup(const TcqShape& shape, const uint8_t* codes, int64_t group, int64_t begin,
              int64_t end, const int32_t (*q)[kTcqGroupColumns], int64_t num_rows, int64_t* sums) {
  const int64_t plane_bytes = shape.rows * shape.bundle_groups;
  const uint8_t* first = codes + shape.ByteOf(group, 0);
  uint32_t before =
      begin == 0 ? kTcqStart : first[(begin - 1) * shape.bundle_groups + 2 * plane_bytes];
  for (int64_t r = begin; r < end; ++r) {
    const uint8_t* row = first + r * shape.bundle_groups;
    const uint32_t bits = before | uint32_t{row[0]} << 8 | uint32_t{row[plane_bytes]} << 16 |
                          uint32_t{row[2 * plane_bytes]} << 24;
    before = bits >> 24;
    int32_t values[kTcqGroupColumns];
    for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
      const uint32_t window = bits >> (kTcqSymbolBits * (t + 1)) & (kTcqWindows - 1);
      values[t] = kTcqLow[window & 15] + kTcqHigh[window >> 4];
    }
    for (int64_t a = 0; a < num_rows; ++a) {
      int64_t sum = 0;
      for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
        sum += int64_t{q[a][t]} * values[t];
      }
      sums[a * (end - begin) + r - begin] += sum;
    }
  }
}

template <int kPlanes>
void AddCodesToRows(const TcqShape& shape, const uint8_t* codes, int64_t begin, int64_t end,
                    const int32_t* const* words, int64_t num_rows, int64_t* sums) {
  for (int64_t first = 0; first < num_rows; first += kBlock) {
    const int64_t count = std::min(kBlock, num_rows - first);
    for (int64_t group = 0; group < shape.bundles * shape.bundle_groups; ++group) {
      int32_t q[kBlock][kTcqGroupColumns];
      for (int64_t a = 0; a < count; ++a) {
        for (int64_t t = 0; t < kTcqGroupColumns; ++t) {
          q[a][t] = ActivationOf<kPlanes>(
              words[first + a] + group / shape.bundle_groups * TcqBundleWords(kPlanes),
              group % shape.bundle_groups, t);
        }
      }
      AddGroup(shape, codes, group, begin, end, q, count, sums + first * (end - begin));
    }
  }
}

template <int kPlanes>
void AddCodes(const TcqShape& shape, const uint8_t* codes, const int32_t* words, int64_t* sums) {
  AddCodesToRows<kPlanes>(shape, codes, 0, shape.rows, &words, 1, sums);
}

}  // namespace

const TcqKernels& TcqKernelsScalar(ExpertArithmetic arithmetic) {
  static constexpr TcqKernels kExact = {kExactPlanes, AddCodes<kExactPlanes>,
                                        AddCodesToRows<kExactPlanes>};
  static constexpr TcqKernels kFast = {kFastPlanes, AddCodes<kFastPlanes>,
                                       AddCodesToRows<kFastPlanes>};
  return arithmetic == ExpertArithmetic::kExact ? kExact : kFast;
}

const TcqKernels& TcqKernelsOf(KernelTarget target, ExpertArithmetic arithmetic) {
  switch (target) {
#if defined(__x86_64__)
    case KernelTarget::kAvx2:
      return TcqKernelsAvx2(arithmetic);
    case KernelTarget::kAvx512:
      return TcqKernelsAvx512(arithmetic);
#elif defined(__aarch64__)
    case KernelTarget::kNeon:
      return TcqKernelsNeon(arithmetic);
#endif
    default:
      break;
  }
  return TcqKernelsScalar(arithmetic);
}

}  // namespace shoal

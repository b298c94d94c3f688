#include "kernels/rvq_kernels.h"

#include <algorithm>

#include "kernels/rvq_shift.h"

namespace shoal {
namespace {

// table[stage * 64 + entry] = value(stage, entry). At most 8 * 127 * ActivationMax(3) < 2^30: it fits
// int32.
void BuildTables(const int8_t* book, const int32_t* q, int64_t positions, int32_t* tables) {
  for (int64_t p = 0; p < positions; ++p) {
    for (int64_t i = 0; i < kRvqTableElements; ++i) {
      const int8_t* entry = book + i * kSubVectorSize;
      int32_t sum = 0;
      for (int d = 0; d < kSubVectorSize; ++d) {
        sum += int32_t{entry[d]} * q[p * kSubVectorSize + d];
      }
      tables[p * kRvqTableElements + i] = sum;
    }
  }
}

void BuildRoundedTables(const int8_t* book, const int32_t* q, int64_t positions, int32_t* tables) {
  BuildTables(book, q, positions, tables);
  const uint64_t entries = LargestSquare(book, kRvqTableElements);
  for (int64_t p = 0; p < positions; p += kRvqBlockPositions) {
    const int64_t count = std::min(kRvqBlockPositions, positions - p);
    const int shift = RvqShift(entries, LargestSquare(q + p * kSubVectorSize, count));
    for (int64_t i = p * kRvqTableElements; i < (p + count) * kRvqTableElements; ++i) {
      tables[i] = (tables[i] + RvqHalf(shift)) >> shift << shift;
    }
  }
}

void AddCodes(const uint8_t* codes, int64_t position_stride, int64_t positions, int64_t rows,
              const int32_t* tables, int64_t* sums) {
  for (int64_t p = 0; p < positions; ++p) {
    const uint8_t* low = codes + p * position_stride;
    const uint8_t* middle = low + rows;
    const uint8_t* high = middle + rows;
    const int32_t* table = tables + p * kRvqTableElements;
    for (int64_t r = 0; r < rows; ++r) {
      const uint32_t code =
          low[r] | static_cast<uint32_t>(middle[r]) << 8 | static_cast<uint32_t>(high[r]) << 16;
      // Two values of a stage fit int32 only singly, so the four are added as int64.
      sums[r] += int64_t{table[code & 63]} + table[64 + ((code >> 6) & 63)] +
                 table[128 + ((code >> 12) & 63)] + table[192 + (code >> 18)];
    }
  }
}

}  // namespace

const RvqKernels& RvqKernelsScalar(ExpertArithmetic arithmetic) {
  static constexpr RvqKernels kExact = {kExactPlanes, BuildTables, AddCodes};
  static constexpr RvqKernels kFast = {kFastPlanes, BuildRoundedTables, AddCodes};
  return arithmetic == ExpertArithmetic::kExact ? kExact : kFast;
}

const RvqKernels& RvqKernelsOf(KernelTarget target, ExpertArithmetic arithmetic) {
  switch (target) {
#if defined(__x86_64__)
    case KernelTarget::kAvx2:
      return RvqKernelsAvx2(arithmetic);
    case KernelTarget::kAvx512:
      return RvqKernelsAvx512(arithmetic);
#endif
    default:
      break;
  }
  return RvqKernelsScalar(arithmetic);
}

}  // namespace shoal

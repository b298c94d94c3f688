// The integer sums of tcq3, for one row of activations and for many, once for each instruction set. Sums are
// exact, so every target gives the same.
#ifndef SHOAL_KERNELS_TCQ_KERNELS_H_
#define SHOAL_KERNELS_TCQ_KERNELS_H_

#include <cstdint>

#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"
#include "kernels/tcq.h"

namespace shoal {

// 32-bit words of the activations of one bundle: [plane][column of the group], whose bytes are those of the
// bundle's groups.
constexpr int64_t TcqBundleWords(int planes) { return planes * kTcqGroupColumns; }

// Of one arithmetic. Thread-safe: functions of their arguments.
struct TcqKernels {
  int planes = 0;  // of the activations (expert_arithmetic.h)
  // sums[r] += sum over columns of (value + kTcqCenter) * q, for r < shape.rows. `codes` has
  // shape.bytes() and no alignment; `words` has TcqBundleWords(planes) for every bundle.
  void (*add_codes)(const TcqShape& shape, const uint8_t* codes, const int32_t* words,
                    int64_t* sums);
  // The same for rows `begin` to `end` of the matrix and several rows of activations, row a of which has its
  // words at words[a]: sums[a * (end - begin) + r - begin] += ... Codes are decoded once for all of
  // them, of which there is at least one.
  void (*add_codes_to_rows)(const TcqShape& shape, const uint8_t* codes, int64_t begin, int64_t end,
                            const int32_t* const* words, int64_t num_rows, int64_t* sums);
};

// REQUIRES: the target is one of SupportedKernelTargets.
const TcqKernels& TcqKernelsOf(KernelTarget target, ExpertArithmetic arithmetic);

// Each in a file of its own, compiled for its target.
const TcqKernels& TcqKernelsScalar(ExpertArithmetic arithmetic);
const TcqKernels& TcqKernelsAvx2(ExpertArithmetic arithmetic);
const TcqKernels& TcqKernelsAvx512(ExpertArithmetic arithmetic);
const TcqKernels& TcqKernelsNeon(ExpertArithmetic arithmetic);

}  // namespace shoal

#endif  // SHOAL_KERNELS_TCQ_KERNELS_H_

// Instruction sets that kernels are written for. All give the same bits; they differ in speed.
#ifndef SHOAL_KERNELS_KERNEL_TARGET_H_
#define SHOAL_KERNELS_KERNEL_TARGET_H_

#include <optional>
#include <span>
#include <string_view>

namespace shoal {

enum class KernelTarget {
  kScalar,  // no instruction set beyond what the whole program is built for
  kAvx2,
  kAvx512,  // F, BW, VL, VBMI, VNNI
  kNeon,    // with the dot product of ARMv8.2; of rvq3 the scalar kernels
};

// "scalar", "avx2", "avx512", "neon".
std::string_view KernelTargetName(KernelTarget target);
std::optional<KernelTarget> ParseKernelTarget(std::string_view name);

// Those that this CPU and the system can run, the fastest last; scalar is always one.
std::span<const KernelTarget> SupportedKernelTargets();
KernelTarget BestKernelTarget();

}  // namespace shoal

#endif  // SHOAL_KERNELS_KERNEL_TARGET_H_

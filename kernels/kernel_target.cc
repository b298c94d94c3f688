#include "kernels/kernel_target.h"

#include <array>
#include <cstddef>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace shoal {
namespace {

constexpr std::array<KernelTarget, 4> kAllTargets = {KernelTarget::kScalar, KernelTarget::kAvx2,
                                                     KernelTarget::kAvx512, KernelTarget::kNeon};

// Those of this processor's family, each of which needs what the one before needs.
#if defined(__x86_64__)
constexpr std::array<KernelTarget, 3> kTargets = {KernelTarget::kScalar, KernelTarget::kAvx2,
                                                  KernelTarget::kAvx512};
#elif defined(__aarch64__)
constexpr std::array<KernelTarget, 2> kTargets = {KernelTarget::kScalar, KernelTarget::kNeon};
#else
constexpr std::array<KernelTarget, 1> kTargets = {KernelTarget::kScalar};
#endif

// How many of kTargets, from the front, this CPU has.
size_t CountSupported() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2")) {
    return 1;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                      __builtin_cpu_supports("avx512vnni");
  return avx512 ? 3 : 2;
#elif defined(__aarch64__)
  constexpr unsigned long kDotProduct = 1UL << 20;  // HWCAP_ASIMDDP of asm/hwcap.h
  return (getauxval(AT_HWCAP) & kDotProduct) != 0 ? 2 : 1;
#else
  return 1;
#endif
}

}  // namespace

std::string_view KernelTargetName(KernelTarget target) {
  switch (target) {
    case KernelTarget::kScalar:
      return "scalar";
    case KernelTarget::kAvx2:
      return "avx2";
    case KernelTarget::kAvx512:
      return "avx512";
    case KernelTarget::kNeon:
      return "neon";
  }
  return "";
}

std::optional<KernelTarget> ParseKernelTarget(std::string_view name) {
  for (const KernelTarget target : kAllTargets) {
    if (KernelTargetName(target) == name) {
      return target;
    }
  }
  return std::nullopt;
}

std::span<const KernelTarget> SupportedKernelTargets() {
  return std::span(kTargets).first(CountSupported());
}

KernelTarget BestKernelTarget() { return SupportedKernelTargets().back(); }

}  // namespace shoal

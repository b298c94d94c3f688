// Every kernel that this CPU runs, in both arithmetics, as parameters of a test.
#ifndef SHOAL_TESTS_KERNELS_KERNEL_VARIANT_H_
#define SHOAL_TESTS_KERNELS_KERNEL_VARIANT_H_

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"

namespace shoal {

class KernelVariantTest
    : public ::testing::TestWithParam<std::tuple<KernelTarget, ExpertArithmetic>> {
 protected:
  static KernelTarget Target() { return std::get<0>(GetParam()); }
  static ExpertArithmetic Arithmetic() { return std::get<1>(GetParam()); }
  static int Planes() { return ActivationPlanes(Arithmetic()); }
};

inline auto AllKernelVariants() {
  return ::testing::Combine(
      ::testing::ValuesIn(SupportedKernelTargets().begin(), SupportedKernelTargets().end()),
      ::testing::Values(ExpertArithmetic::kExact, ExpertArithmetic::kFast));
}

inline std::string KernelVariantName(
    const ::testing::TestParamInfo<std::tuple<KernelTarget, ExpertArithmetic>>& info) {
  return std::string(KernelTargetName(std::get<0>(info.param))) + "_" +
         std::string(ExpertArithmeticName(std::get<1>(info.param)));
}

}  // namespace shoal

#endif  // SHOAL_TESTS_KERNELS_KERNEL_VARIANT_H_

// The instruction set that experts are computed with, as people choose it.
#ifndef SHOAL_EXPERT_NODE_KERNEL_CHOICE_H_
#define SHOAL_EXPERT_NODE_KERNEL_CHOICE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/kernel_target.h"

namespace shoal {

// For --help of the flag --kernels.
inline constexpr absl::string_view kKernelsHelp =
    "Instruction set of the expert kernels: scalar, avx2, avx512, neon.\nThe answer is the same to "
    "the bit (default: the best there is)";

// The target of this name; the best one where there is none.
//   INVALID_ARGUMENT  there is no such target, or this CPU cannot run it; names those it can
absl::StatusOr<KernelTarget> ChooseKernels(const std::optional<std::string>& name);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_KERNEL_CHOICE_H_

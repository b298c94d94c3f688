#include "expert_node/kernel_choice.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace shoal {

absl::StatusOr<KernelTarget> ChooseKernels(const std::optional<std::string>& wanted) {
  if (!wanted) {
    return BestKernelTarget();
  }
  const std::string& name = *wanted;
  const auto supported = SupportedKernelTargets();
  const std::optional<KernelTarget> target = ParseKernelTarget(name);
  if (target && std::find(supported.begin(), supported.end(), *target) != supported.end()) {
    return *target;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--kernels \"", name,
      "\": ", target ? "this CPU cannot run it" : "there is no such instruction set", "; choose ",
      absl::StrJoin(supported, ", ", [](std::string* out, KernelTarget one) {
        out->append(KernelTargetName(one));
      })));
}

}  // namespace shoal

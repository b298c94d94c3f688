#include "expert_node/cpu_choice.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/cpu_list.h"

namespace shoal {

absl::StatusOr<std::vector<int>> ChooseCpus(const std::optional<std::string>& cpus,
                                            std::optional<int64_t> num_threads) {
  if (!cpus) {
    return std::vector<int>();
  }
  absl::StatusOr<std::vector<int>> list = ParseCpuList(*cpus);
  SHOAL_RETURN_IF_ERROR(Annotate(list.status(), "--cpus"));
  if (num_threads && *num_threads > static_cast<int64_t>(list->size())) {
    return absl::InvalidArgumentError(absl::StrCat("--threads ", *num_threads, " with --cpus ",
                                                   *cpus, ", which are ", list->size(),
                                                   ": name as many CPUs, or leave --threads out"));
  }
  SHOAL_RETURN_IF_ERROR(Annotate(StayOnCpus(*list), absl::StrCat("--cpus ", *cpus)));
  return list;
}

}  // namespace shoal

// The flags that say how `shoal serve` answers clients.
#ifndef SHOAL_COORDINATOR_CLI_INFERENCE_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_INFERENCE_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/service/inference_service.h"

namespace shoal {

struct InferenceFlags {
  std::optional<std::string> name;
  int64_t num_sessions = 1;
  int64_t max_waiting = 16;
  std::optional<int64_t> client_calls;
  std::optional<int64_t> max_time_s;
  int64_t drain_time_s = 30;

  void Add(FlagSet& flags);
  // Without --name the model is called as the last part of `directory` is. Errors of the service go to standard
  // error. A usage error where the name is none.
  absl::StatusOr<InferenceService::Options> Options(const std::string& directory) const;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_INFERENCE_FLAGS_H_

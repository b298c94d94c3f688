// Writes what a forward pass computes on the way as .npy files.
#ifndef SHOAL_COORDINATOR_CLI_HIDDEN_DUMP_H_
#define SHOAL_COORDINATOR_CLI_HIDDEN_DUMP_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/npy_writer.h"
#include "coordinator/session.h"

namespace shoal {

// One file a name: "embedding.npy", "after_mixer.3.npy", "hidden.3.npy", "final_norm.npy" (float32
// [positions, hidden_size]), "router_ids.3.npy" (int32) and "router_weights.3.npy" (float32), both
// [positions, num_experts_per_token].
class HiddenDump final : public ForwardObserver {
 public:
  // Creates `directory` where it does not exist. `positions` is how many the pass will have in all.
  static absl::StatusOr<std::unique_ptr<HiddenDump>> Create(const std::string& directory,
                                                            int64_t positions);

  void OnHidden(const std::string& name, int64_t first_position, int64_t num_rows,
                std::span<const float> values) override;
  void OnRouting(int64_t layer, int64_t first_position, int64_t num_rows,
                 std::span<const int32_t> expert_ids,
                 std::span<const float> expert_weights) override;

  // Gives the files their names. The first error of all calls before, or its own.
  absl::Status Finish();

 private:
  HiddenDump(std::string directory, int64_t positions)
      : directory_(std::move(directory)), positions_(positions) {}
  template <typename T>
  void Write(const std::string& name, int64_t num_rows, std::span<const T> values);

  std::string directory_;
  int64_t positions_;
  std::map<std::string, NpyWriter> writers_;
  absl::Status status_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_HIDDEN_DUMP_H_

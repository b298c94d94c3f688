// What the expert engine knows of a model: sizes and codebooks of the routed experts, nothing of
// the trunk.
#ifndef SHOAL_EXPERT_NODE_EXPERT_MODEL_H_
#define SHOAL_EXPERT_NODE_EXPERT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/partition.h"
#include "common/container/unit_layout.h"
#include "kernels/rvq.h"

namespace shoal {

// The sizes, which are all that a caller needs.
struct ExpertSizes {
  UnitLayout layout;
  int64_t num_experts = 0;            // in each MoE layer
  int64_t num_experts_per_token = 0;  // chosen for each row
  std::vector<int64_t> layers;        // the MoE layers, increasing; the model's layer indices

  // Place of `layer` in `layers`; nothing where it is not an MoE layer.
  std::optional<size_t> LayerIndex(int64_t layer) const;
  // All units of all experts.
  ExpertSlice whole() const { return {{0, layout.num_units}, {0, num_experts}}; }

  static ExpertSizes FromManifest(const Manifest& manifest);
};

struct ExpertModel : ExpertSizes {
  std::vector<LayerCodebooks> codebooks;  // of the layers; empty where the codec has none
  uint64_t seed = 0;                      // the container's, which tcq3's rotations follow from

  // Reads the codebooks.
  //   FAILED_PRECONDITION   the model has no MoE layer
  //   UNIMPLEMENTED         a row sums so many terms that the fixed point sum could overflow
  //   and Container::ReadCodebooks' errors
  static absl::StatusOr<ExpertModel> FromContainer(const Container& container);
  // The same from what a partition has of its container.
  static absl::StatusOr<ExpertModel> FromPartition(const Partition& partition);

  // The last two checks above, for models that are put together elsewhere; INTERNAL where counts
  // contradict each other.
  absl::Status Check() const;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_MODEL_H_

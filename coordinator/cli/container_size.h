// How large a container's weights are.
#ifndef SHOAL_COORDINATOR_CLI_CONTAINER_SIZE_H_
#define SHOAL_COORDINATOR_CLI_CONTAINER_SIZE_H_

#include <cstdint>

#include "common/container/manifest.h"

namespace shoal {

struct ContainerSize {
  uint64_t total_bytes = 0;  // of all files that the manifest lists
  uint64_t trunk_bytes = 0;
  uint64_t expert_bytes = 0;  // banks and codebooks
  uint64_t trunk_weights = 0;
  uint64_t expert_weights = 0;

  // Stored bits for each weight, padding, scales and checksums included; 0 where there is none.
  double bits_per_weight() const;
  double expert_bits_per_weight() const;
};

ContainerSize SizeOf(const Manifest& manifest);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_CONTAINER_SIZE_H_

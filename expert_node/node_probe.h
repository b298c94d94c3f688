// What a node finds out about itself before it serves.
#ifndef SHOAL_EXPERT_NODE_NODE_PROBE_H_
#define SHOAL_EXPERT_NODE_NODE_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "expert_node/expert_backend.h"
#include "expert_node/expert_model.h"
#include "expert_node/service/held_units.h"

namespace shoal {

// Applies one expert of every slice to a row: reading, checksums and kernels work here. Errors are
// those of Execute; a term that is not finite is OUT_OF_RANGE there.
absl::Status ProbeExperts(ExpertBackend& backend, const ExpertModel& model, const HeldUnits& units);

// Bytes of its records a second that the disk gives, in random order, a few reads at a time, for
// about `duration`. ExpertStore::ReadRecord's errors.
absl::StatusOr<uint64_t> MeasureReadRate(const HeldUnits& units, absl::Duration duration,
                                         const Clock& clock);

inline constexpr uint64_t kScratchReadBytes = uint64_t{1} << 20;
// The same where there are no records yet: reads of kScratchReadBytes from a scratch file of 64 MiB, which is
// written into `directory` first and has no name there, so that nothing is left of it.
//   RESOURCE_EXHAUSTED  the disk has less than 8 times that free
//   and the errors of writing and reading
absl::StatusOr<uint64_t> MeasureScratchReadRate(const std::string& directory,
                                                absl::Duration duration, const Clock& clock);

// Bytes of units a second that the kernels apply to one row, from memory, for about `duration`.
// Execute's errors.
absl::StatusOr<uint64_t> MeasureComputeRate(ExpertBackend& backend, const ExpertModel& model,
                                            const HeldUnits& units, absl::Duration duration,
                                            const Clock& clock);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_NODE_PROBE_H_

// The trunk file of a container: every trunk tensor in its stored type, one after another.
#ifndef SHOAL_COORDINATOR_CONVERT_TRUNK_WRITER_H_
#define SHOAL_COORDINATOR_CONVERT_TRUNK_WRITER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/manifest.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/ledger.h"
#include "coordinator/convert/source_model.h"

namespace shoal {

// The entries of trunk.bin for this source and `--trunk` type, complete but for their checksums.
std::vector<TrunkEntry> LayOutTrunk(const SourceModel& source, TrunkType type);

// Writes `directory`/trunk.bin. Memory: a few MiB, and the scales of one tensor. `on_bytes` is
// called from the calling thread with the number of source bytes read since the last call; an error
// it returns ends the work. Errors: INVALID_ARGUMENT (a weight that is not finite, or too large for
// the stored type; named), RESOURCE_EXHAUSTED (disk).
absl::StatusOr<LedgerTrunk> WriteTrunk(const Checkpoint& checkpoint, const SourceModel& source,
                                       const std::vector<TrunkEntry>& entries,
                                       const std::string& directory, ThreadPool& pool,
                                       const std::function<absl::Status(uint64_t)>& on_bytes);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_TRUNK_WRITER_H_

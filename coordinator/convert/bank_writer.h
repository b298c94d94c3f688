// The bank file of one MoE layer, and its hash tree.
#ifndef SHOAL_COORDINATOR_CONVERT_BANK_WRITER_H_
#define SHOAL_COORDINATOR_CONVERT_BANK_WRITER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/unit_layout.h"
#include "common/model/model_config.h"
#include "common/sync/thread_pool.h"
#include "coordinator/convert/codebook_training.h"
#include "coordinator/convert/ledger.h"

namespace shoal {

struct BankJob {
  const Checkpoint& checkpoint;
  const ModelConfig& config;
  const UnitLayout& layout;
  int64_t layer = 0;
  std::optional<TrainedCodebooks> codebooks;  // absent where the codec has none
  uint64_t seed = 0;                          // the container's
  std::string directory;                      // of the container in the making
};

// Reads, encodes and writes every expert of the layer. A few experts are in memory at a time,
// within a quarter of the usable memory or one; all of the pool's threads work on their units.
// `on_bytes` is called from the calling thread with the number of source bytes done since the last
// call; an error it returns ends the work. Errors: INVALID_ARGUMENT (weights), RESOURCE_EXHAUSTED
// (disk).
absl::StatusOr<LedgerLayer> WriteBank(const BankJob& job, ThreadPool& pool,
                                      const std::function<absl::Status(uint64_t)>& on_bytes);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_BANK_WRITER_H_

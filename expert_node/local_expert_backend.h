// The one implementation of expert arithmetic: reads records of the slices it holds, keeps them in
// a bounded cache, and applies them. Single-machine mode calls it directly; a node calls it for
// the coordinator.
#ifndef SHOAL_EXPERT_NODE_LOCAL_EXPERT_BACKEND_H_
#define SHOAL_EXPERT_NODE_LOCAL_EXPERT_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/sync/clock.h"
#include "common/sync/thread_pool.h"
#include "expert_node/expert_backend.h"
#include "expert_node/expert_model.h"
#include "expert_node/expert_split.h"
#include "expert_node/record_reader.h"
#include "expert_node/slice_source.h"
#include "kernels/kernel_target.h"

namespace shoal {

// How the records are really read: what the kernel granted, not what was asked.
struct ExpertIoMode {
  bool direct = false;         // O_DIRECT on every bank
  std::string engine;          // "pread"
  std::string why_not_direct;  // the file system's refusal, empty where direct
  int64_t cache_records = 0;   // slots in the arena
  uint64_t cache_bytes = 0;
};

class LocalExpertBackend final : public ExpertBackend {
 public:
  struct Options {
    int64_t cache_records = 0;  // slots of the arena; at least MinCacheRecords
    int io_threads = 0;         // concurrent reads; 0: a default
    KernelTarget kernels = BestKernelTarget();
    std::optional<ExpertSplits> splits = {};  // absent: the usual ones
    WrapReader wrap_reader = {};              // absent: records are read as they are
  };

  // Opens every bank of every slice and allocates the arena and all scratch. A slot of the arena is
  // as large as the largest record. `pool` and `clock` outlive the backend.
  //   INVALID_ARGUMENT     a slice is empty or outside the model, or two overlap
  //   FAILED_PRECONDITION  cache_records is below the minimum
  //   RESOURCE_EXHAUSTED   the system has no memory for arena or scratch
  //   and the errors of PreadRecordReader::Open
  static absl::StatusOr<std::unique_ptr<LocalExpertBackend>> Open(ExpertModel model,
                                                                  std::vector<SliceSource> slices,
                                                                  const Options& options,
                                                                  ThreadPool& pool,
                                                                  const Clock& clock);
  // The same with all experts of a container, as one slice; and ExpertModel::FromContainer's
  // errors.
  static absl::StatusOr<std::unique_ptr<LocalExpertBackend>> Open(const Container& container,
                                                                  const Options& options,
                                                                  ThreadPool& pool,
                                                                  const Clock& clock);
  ~LocalExpertBackend() override;

  // Fewest cache slots it accepts: a token's experts, each in every slice, fit at once, so that
  // none is read twice for one token. And what Open will allocate beside the arena. Both from the
  // manifest alone, so that `plan` can say them without loading.
  static int64_t MinCacheRecords(const ModelConfig& config, int64_t num_slices = 1);
  static uint64_t ScratchBytes(const Manifest& manifest, int num_threads);

  absl::Status Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                       std::stop_token stop, std::span<int64_t> out) override;
  std::vector<ExpertLayerStats> Stats() const override;
  ExpertIoMode io_mode() const;

 private:
  struct Impl;
  explicit LocalExpertBackend(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_LOCAL_EXPERT_BACKEND_H_

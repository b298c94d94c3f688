// A model opened for running: trunk in memory, experts behind an ExpertBackend. The entry point for
// programs that embed Shoal; several models may be open in one process.
//
//   auto model = shoal::Model::Open("models/tiny", {});
//   auto session = (*model)->NewSession();
//   auto result = shoal::Generate(**session, (*model)->tokenizer().EncodeText("Once upon a time"),
//   {}, callback);
#ifndef SHOAL_COORDINATOR_MODEL_H_
#define SHOAL_COORDINATOR_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/memory_plan.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/session.h"
#include "expert_node/expert_backend.h"
#include "expert_node/expert_split.h"
#include "expert_node/local_expert_backend.h"
#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"

namespace shoal {

struct ModelOptions {
  // Hard ceiling of the process; absent: chosen by PlanMemory.
  std::optional<uint64_t> budget_bytes = {};
  // Of each session; cut to the model's own limit where that is less.
  int64_t context_tokens = 4096;
  int num_sessions = 1;                       // at once
  int num_threads = 0;                        // 0: the CPUs this process may use
  std::vector<int> cpus = {};                 // as ThreadPool's
  KernelTarget kernels = BestKernelTarget();  // of the experts
  // Where measurements of how work is best shared out among threads are kept, and taken from at the next opening
  // (common/io/profile_store.h); empty: nothing is measured, and what is usual holds.
  std::string profile_directory = {};
  // Of the experts: the one option that changes the bits of the answer.
  ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
  // Fewer expert cache slots than the budget allows, for measurements and tests.
  std::optional<int64_t> cache_records = {};
  // Machines that compute the experts. What no live one holds, this process computes from the
  // container's own banks, unless `pool_alone`.
  std::optional<PoolOptions> pool = {};
  bool pool_alone = false;
  int num_copies =
      0;  // of the experts that the caller lends to nodes at a time, for the memory plan
  uint64_t client_bytes = 0;  // of requests that the caller holds for clients, likewise
};

// How work is shared out among the threads. `*_origin` is for people: "usual", or as CalibratedSplits says.
struct ThreadProfile {
  // Of the experts that this process computes; none where it computes none.
  std::optional<ExpertSplits> expert_splits;
  std::string expert_splits_origin;
  int64_t least_parallel_cost =
      0;  // multiply-adds of a loop of the trunk from which on it takes all threads
  std::string least_parallel_cost_origin;
};

// What the model runs with, as the system granted it until now.
struct EffectiveMode {
  MemoryPlan plan;
  ExpertIoMode expert_io;  // a read may fall back to buffered at any time
  int num_threads = 0;
  std::vector<int> cpus;  // that the process may run on
  ThreadProfile threads;
  int64_t context_tokens = 0;
  std::string experts;  // codec
  std::string trunk;    // storage of the projections
  ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
  KernelTarget kernels = KernelTarget::kScalar;  // of the experts
  std::vector<PoolNodeStatus> nodes;             // of the pool, now; empty where there is none
};

// Thread-safe.
class Model {
 public:
  // Opens a container: verifies small files, plans memory, loads and checks the trunk, opens the
  // banks.
  //   FAILED_PRECONDITION  the budget is below the floor (the message is the table)
  //   and Container::Open's, PlanMemory's, LocalExpertBackend::Open's and PoolBackend::Open's errors
  static absl::StatusOr<std::unique_ptr<Model>> Open(const std::string& directory,
                                                     const ModelOptions& options);
  ~Model();

  const ModelConfig& config() const;
  const Container& container() const;
  const Tokenizer& tokenizer() const;
  EffectiveMode mode() const;
  std::vector<ExpertLayerStats> ExpertStats() const;
  // The model's; null where it was opened without a pool.
  PoolBackend* pool();

  // RESOURCE_EXHAUSTED where `num_sessions` are open already.
  absl::StatusOr<std::unique_ptr<Session>> NewSession();

 private:
  friend class Session;
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  static absl::Status OpenLocalExperts(Impl& impl, const ModelOptions& options);
  static absl::Status OpenExperts(Impl& impl, const ModelOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_H_

// The flags that say how a container is opened.
#ifndef SHOAL_COORDINATOR_CLI_MODEL_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_MODEL_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/memory_plan.h"
#include "coordinator/model.h"

namespace shoal {

struct ModelFlags {
  std::string directory;
  std::optional<uint64_t> budget_bytes;
  std::optional<int64_t> context_tokens;
  std::optional<int64_t> num_threads;
  std::optional<std::string> cpus;
  std::optional<std::string> profile;
  std::optional<int64_t> cache_records;
  std::optional<std::string> kernels;
  std::optional<std::string> arithmetic;
  bool verbose = false;
  // For a coordinator that stays, set by its command: memory is planned for lending experts to
  // nodes, kLentAtOnce at a time, and for a later plan with more nodes.
  bool resident = false;
  int num_sessions = 1;       // at once, set by the command
  uint64_t client_bytes = 0;  // of requests of clients, likewise
  PoolFlags pool;

  // DIR, then everything else under "Model". `default_context` says what holds without --ctx.
  void AddDirectory(FlagSet& flags);
  void AddOptions(FlagSet& flags, absl::string_view default_context = "4096");
  // --ctx, --budget and --threads alone.
  void AddPlanOptions(FlagSet& flags, absl::string_view default_context = "4096");
};

// Opens the model and says on `console` what the system did not grant, and with -v all of the
// effective mode. `default_context` holds where --ctx is absent; either is cut to the limit of the
// model.
absl::StatusOr<std::unique_ptr<Model>> OpenModel(const ModelFlags& flags, int64_t default_context,
                                                 Console& console);

// PlanMemory for these flags, with the context that OpenModel would take.
absl::StatusOr<MemoryPlan> PlanFor(const ModelFlags& flags, int64_t default_context,
                                   const Manifest& manifest, Console& console);

inline constexpr int kLentAtOnce = 2;
inline constexpr int64_t kDefaultContextTokens = 4096;

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_MODEL_FLAGS_H_

#include "coordinator/cli/model_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/container/container.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_pool.h"
#include "coordinator/cli/statistics.h"

namespace shoal {
namespace {

// FAILED_PRECONDITION has several causes; only this one has an exit code of its own.
bool IsBelowFloor(const ModelFlags& flags, int64_t default_context) {
  const auto container = Container::Open(flags.directory);
  return container.ok() && absl::IsFailedPrecondition(
                               PlanFor(flags, default_context, (*container)->manifest()).status());
}

}  // namespace

void ModelFlags::AddDirectory(FlagSet& flags) {
  flags.RequiredArgument("DIR", &directory, "Container made by `shoal convert`");
}

void ModelFlags::AddPlanOptions(FlagSet& flags) {
  flags.Heading("Model");
  flags.Integer("--ctx", &context_tokens, {1, 1'000'000'000},
                absl::StrCat("Tokens that a context can hold (default: ", kDefaultContextTokens,
                             ", or\nwhat --window or the tokens of a bench need)"));
  flags.ByteSize("--budget", &budget_bytes,
                 "Hard ceiling on the memory of the process, like 8GiB or 8GB\n(default: from the "
                 "memory that is free)");
  flags.Integer("--threads", &num_threads, {1, 1024},
                "Threads that compute (default: the CPUs this process may use)");
}

void ModelFlags::AddOptions(FlagSet& flags) {
  AddPlanOptions(flags);
  flags.Integer("--cache-records", &cache_records, {1, 1'000'000'000},
                "Fewer experts in the cache than the budget allows, for\nmeasurements");
  flags.Switch("-v,--verbose", &verbose, "Print how the model really runs: reads, cache, memory");
}

absl::StatusOr<MemoryPlan> PlanFor(const ModelFlags& flags, int64_t default_context,
                                   const Manifest& manifest) {
  PlanOptions options;
  options.context_tokens = flags.context_tokens.value_or(
      std::min(default_context, manifest.config.max_position_embeddings));
  options.num_threads = static_cast<int>(flags.num_threads.value_or(UsableCpus()));
  options.budget_bytes = flags.budget_bytes;
  absl::StatusOr<MemoryPlan> plan = PlanMemory(manifest, options);
  if (absl::IsFailedPrecondition(plan.status())) {
    return WithExitCode(plan.status(), ExitCode::kBudgetBelowFloor);
  }
  return plan;
}

absl::StatusOr<std::unique_ptr<Model>> OpenModel(const ModelFlags& flags, int64_t default_context,
                                                 Console& console) {
  ModelOptions options;
  options.budget_bytes = flags.budget_bytes;
  options.context_tokens = flags.context_tokens.value_or(default_context);
  options.num_threads = static_cast<int>(flags.num_threads.value_or(0));
  options.cache_records = flags.cache_records;
  absl::StatusOr<std::unique_ptr<Model>> model = Model::Open(flags.directory, options);
  if (absl::IsFailedPrecondition(model.status()) && IsBelowFloor(flags, default_context)) {
    return WithExitCode(model.status(), ExitCode::kBudgetBelowFloor);
  }
  SHOAL_RETURN_IF_ERROR(model.status());
  const EffectiveMode& mode = (*model)->mode();
  if (flags.context_tokens.value_or(0) > mode.context_tokens) {
    console.Note(absl::StrCat("shoal: --ctx ", *flags.context_tokens, " is cut to ",
                              mode.context_tokens, ", the limit of this model"));
  }
  if (flags.verbose) {
    console.NoteRaw(FormatMode(mode));
  } else if (!mode.expert_io.direct && !mode.expert_io.why_not_direct.empty()) {
    console.Note(absl::StrCat("shoal: experts are read through the page cache, which is slower: ",
                              mode.expert_io.why_not_direct));
  }
  return model;
}

}  // namespace shoal

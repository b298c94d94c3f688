#include "coordinator/cli/model_flags.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/io/profile_store.h"
#include "common/status/status_macros.h"
#include "common/sync/thread_pool.h"
#include "coordinator/cli/statistics.h"
#include "expert_node/cpu_choice.h"
#include "expert_node/kernel_choice.h"

namespace shoal {
namespace {

// The context that a model of this `limit` runs with; a note where that is less than asked.
int64_t CutContext(const ModelFlags& flags, int64_t default_context, int64_t limit,
                   Console& console) {
  if (flags.context_tokens.value_or(0) > limit) {
    console.Note(absl::StrCat("shoal: --ctx ", *flags.context_tokens, " is cut to ", limit,
                              ", the limit of this model"));
  }
  return std::min(flags.context_tokens.value_or(default_context), limit);
}

absl::StatusOr<KernelTarget> KernelsOf(const ModelFlags& flags) {
  absl::StatusOr<KernelTarget> kernels = ChooseKernels(flags.kernels);
  if (!kernels.ok()) {
    return UsageError(kernels.status().message());
  }
  return kernels;
}

absl::StatusOr<std::vector<int>> CpusOf(const ModelFlags& flags) {
  absl::StatusOr<std::vector<int>> cpus = ChooseCpus(flags.cpus, flags.num_threads);
  if (!cpus.ok()) {
    return UsageError(cpus.status().message());
  }
  return cpus;
}

}  // namespace

void ModelFlags::AddDirectory(FlagSet& flags) {
  flags.RequiredArgument("DIR", &directory, "Container made by `shoal convert`");
}

void ModelFlags::AddPlanOptions(FlagSet& flags, absl::string_view default_context) {
  flags.Heading("Model");
  flags.Integer("--ctx", &context_tokens, {1, 1'000'000'000},
                absl::StrCat("Tokens that a context can hold (default: ", default_context, ")"));
  flags.ByteSize("--budget", &budget_bytes,
                 "Hard ceiling on the memory of the process, like 8GiB or 8GB\n(default: from the "
                 "memory that is free)");
  flags.Integer("--threads", &num_threads, {1, 1024},
                "Threads that compute (default: the CPUs this process may use)");
}

void ModelFlags::AddOptions(FlagSet& flags, absl::string_view default_context) {
  AddPlanOptions(flags, default_context);
  flags.Text("--cpus", "LIST", &cpus, std::string(kCpusHelp));
  flags.Text("--profile", "DIR", &profile, std::string(kProfileHelp));
  flags.Integer("--cache-records", &cache_records, {1, 1'000'000'000},
                "Fewer experts in the cache than the budget allows, for\nmeasurements");
  flags.Text("--kernels", "NAME", &kernels, std::string(kKernelsHelp));
  flags.Choice("--arithmetic", {"exact", "fast"}, &arithmetic,
               "How finely the activations of experts are cut: in 21 or\n14 bits. Fast changes the "
               "answer a little (default: exact)");
  flags.Switch("-v,--verbose", &verbose, "Print how the model really runs: reads, cache, memory");
  pool.Add(flags);
}

absl::StatusOr<MemoryPlan> PlanFor(const ModelFlags& flags, int64_t default_context,
                                   const Manifest& manifest, Console& console) {
  PlanOptions options;
  options.context_tokens =
      CutContext(flags, default_context, manifest.config.max_position_embeddings, console);
  options.num_threads = static_cast<int>(flags.num_threads.value_or(UsableCpus()));
  options.budget_bytes = flags.budget_bytes;
  return PlanMemory(manifest, options);
}

absl::StatusOr<std::unique_ptr<Model>> OpenModel(const ModelFlags& flags, int64_t default_context,
                                                 Console& console) {
  ModelOptions options;
  options.budget_bytes = flags.budget_bytes;
  options.context_tokens = flags.context_tokens.value_or(default_context);
  options.num_threads = static_cast<int>(flags.num_threads.value_or(0));
  SHOAL_ASSIGN_OR_RETURN(options.cpus, CpusOf(flags));
  options.profile_directory = ChooseProfileDirectory(flags.profile);
  options.cache_records = flags.cache_records;
  SHOAL_ASSIGN_OR_RETURN(options.kernels, KernelsOf(flags));
  if (flags.arithmetic) {
    options.arithmetic = *ParseExpertArithmetic(*flags.arithmetic);
  }
  options.num_sessions = flags.num_sessions;
  options.client_bytes = flags.client_bytes;
  SHOAL_ASSIGN_OR_RETURN(options.pool, flags.pool.Options(console));
  options.pool_alone = flags.pool.alone;
  if (flags.resident) {
    options.num_copies = kLentAtOnce;
    if (options.pool) {
      options.pool->max_nodes = 2 * static_cast<int>(options.pool->plan.nodes.size()) + 2;
    }
  }
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Open(flags.directory, options));
  const EffectiveMode mode = model->mode();
  CutContext(flags, default_context, model->config().max_position_embeddings, console);
  for (const PoolNodeStatus& node : mode.nodes) {
    if (node.state == NodeState::kLost) {
      // Without a plan nobody knows what it holds, so that it is not among the holders of anything.
      console.Note(absl::StrCat("shoal: node ", node.name, " does not answer, ",
                                options.pool->plan.identity.empty() && node.slices.empty()
                                    ? "and is left out until this is started again: "
                                    : "others stand in: ",
                                node.last_error));
    }
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

#include "coordinator/model.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/profile_store.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/cpu_list.h"
#include "coordinator/model/loop_calibration.h"
#include "coordinator/model/trunk_loops.h"
#include "coordinator/model_impl.h"
#include "expert_node/expert_model.h"
#include "expert_node/slice_source.h"
#include "expert_node/split_calibration.h"

namespace shoal {
namespace {

constexpr char kUsualOrigin[] = "usual";

void CalibrateTrunk(const ModelOptions& options, ThreadPool& pool, ThreadProfile& profile) {
  profile.least_parallel_cost = kUsualParallelCost;
  profile.least_parallel_cost_origin = kUsualOrigin;
  if (!options.profile_directory.empty()) {
    CalibratedLoops calibrated =
        CalibrateLoops(ProfileStore(options.profile_directory), pool, Clock::Real());
    profile.least_parallel_cost = calibrated.least_parallel_cost;
    profile.least_parallel_cost_origin = std::move(calibrated.origin);
  }
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

const ModelConfig& Model::config() const { return impl_->container->config(); }
const Container& Model::container() const { return *impl_->container; }
const Tokenizer& Model::tokenizer() const { return *impl_->tokenizer; }

EffectiveMode Model::mode() const {
  EffectiveMode mode = impl_->mode;
  if (impl_->local_experts != nullptr) {
    mode.expert_io = impl_->local_experts->io_mode();
  }
  if (impl_->pool_experts != nullptr) {
    mode.nodes = impl_->pool_experts->Nodes();
  }
  return mode;
}

std::vector<ExpertLayerStats> Model::ExpertStats() const {
  return impl_->experts ? impl_->experts->Stats() : std::vector<ExpertLayerStats>();
}

PoolBackend* Model::pool() { return impl_->pool_experts; }

absl::Status Model::OpenLocalExperts(Impl& impl, const ModelOptions& options) {
  SHOAL_ASSIGN_OR_RETURN(ExpertModel model, ExpertModel::FromContainer(*impl.container));
  ThreadProfile& profile = impl.mode.threads;
  profile.expert_splits = ExpertSplits::Usual(model.layout, impl.pool->num_threads());
  profile.expert_splits_origin = kUsualOrigin;
  if (!options.profile_directory.empty()) {
    SHOAL_ASSIGN_OR_RETURN(
        CalibratedSplits calibrated,
        CalibrateSplits({model, model.whole(), options.kernels, impl.mode.arithmetic},
                        ProfileStore(options.profile_directory), *impl.pool, Clock::Real()));
    profile.expert_splits = std::move(calibrated.splits);
    profile.expert_splits_origin = std::move(calibrated.origin);
  }
  LocalExpertBackend::Options local_options;
  local_options.cache_records = impl.mode.plan.cache_records;
  local_options.kernels = options.kernels;
  local_options.splits = profile.expert_splits;
  if (options.cache_records) {
    local_options.cache_records = std::min(local_options.cache_records, *options.cache_records);
  }
  std::vector<SliceSource> slices = {SliceOfContainer(*impl.container, model.whole())};
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<LocalExpertBackend> local,
                         LocalExpertBackend::Open(std::move(model), std::move(slices),
                                                  local_options, *impl.pool, Clock::Real()));
  impl.local_experts = local.get();
  impl.experts = std::move(local);
  return absl::OkStatus();
}

absl::Status Model::OpenExperts(Impl& impl, const ModelOptions& options) {
  if (!options.pool || !options.pool_alone) {
    SHOAL_RETURN_IF_ERROR(OpenLocalExperts(impl, options));
  }
  if (options.pool) {
    PoolOptions pool_options = *options.pool;
    pool_options.arithmetic = impl.mode.arithmetic;
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<PoolBackend> pool,
                           PoolBackend::Open(impl.container->manifest(), std::move(pool_options),
                                             std::move(impl.experts), Clock::Real()));
    impl.pool_experts = pool.get();
    impl.experts = std::move(pool);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Model>> Model::Open(const std::string& directory,
                                                   const ModelOptions& options) {
  auto impl = std::make_unique<Impl>();
  SHOAL_ASSIGN_OR_RETURN(impl->container, Container::Open(directory));
  const Manifest& manifest = impl->container->manifest();

  PlanOptions plan_options;
  plan_options.context_tokens =
      std::min(options.context_tokens, manifest.config.max_position_embeddings);
  plan_options.num_threads = options.num_threads > 0 ? options.num_threads : UsableCpus();
  plan_options.num_sessions = options.num_sessions;
  if (options.pool) {
    plan_options.num_nodes =
        std::max(options.pool->max_nodes, static_cast<int>(options.pool->plan.nodes.size()));
  }
  plan_options.audits = options.pool && options.pool->audit_share > 0;
  plan_options.num_copies = options.num_copies;
  plan_options.client_bytes = options.client_bytes;
  plan_options.budget_bytes = options.budget_bytes;
  EffectiveMode& mode = impl->mode;
  SHOAL_ASSIGN_OR_RETURN(mode.plan, PlanMemory(manifest, plan_options));
  SHOAL_RETURN_IF_ERROR(CheckFits(mode.plan));
  mode.num_threads = plan_options.num_threads;
  mode.cpus = AllowedCpus();
  mode.context_tokens = plan_options.context_tokens;
  mode.experts = std::string(ExpertCodecName(manifest.settings.experts));
  mode.trunk = std::string(TrunkTypeName(manifest.settings.trunk));
  // Experts of floats have one arithmetic.
  mode.arithmetic = manifest.settings.experts == ExpertCodec::kF32 ? ExpertArithmetic::kExact
                                                                   : options.arithmetic;
  mode.kernels = options.kernels;
  impl->max_sessions = options.num_sessions;

  SHOAL_ASSIGN_OR_RETURN(impl->tokenizer, Tokenizer::Load(directory, manifest.config.vocab_size));
  SHOAL_ASSIGN_OR_RETURN(impl->weights, TrunkWeights::Load(*impl->container));
  impl->pool = std::make_unique<ThreadPool>(mode.num_threads, options.cpus);
  CalibrateTrunk(options, *impl->pool, mode.threads);
  if (manifest.config.num_moe_layers() > 0) {
    SHOAL_RETURN_IF_ERROR(OpenExperts(*impl, options));
  }
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<Session>> Model::NewSession() {
  if (impl_->open_sessions.fetch_add(1) >= impl_->max_sessions) {
    impl_->open_sessions.fetch_sub(1);
    return absl::ResourceExhaustedError(absl::StrCat(
        "all ", impl_->max_sessions,
        " sessions are open; close one, or open the model with a larger num_sessions"));
  }
  // From here on the destructor gives the place back.
  auto session = std::make_unique<Session::Impl>(*impl_);
  session->config = &config();
  session->identity = &impl_->container->manifest().identity;
  session->context_tokens = impl_->mode.context_tokens;
  session->tokens.reserve(static_cast<size_t>(session->context_tokens));
  session->logits.reserve(static_cast<size_t>(config().vocab_size));
  SHOAL_ASSIGN_OR_RETURN(session->state,
                         SessionState::Allocate(config(), impl_->mode.context_tokens));
  SHOAL_ASSIGN_OR_RETURN(session->workspace,
                         Workspace::Allocate(config(), impl_->mode.plan.prefill_chunk_tokens));
  return std::unique_ptr<Session>(new Session(std::move(session)));
}

}  // namespace shoal

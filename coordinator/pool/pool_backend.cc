#include "coordinator/pool/pool_backend.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "common/sync/stop_wait.h"
#include "coordinator/pool/audit.h"
#include "coordinator/pool/layer_call.h"
#include "coordinator/pool/pool_layout.h"
#include "coordinator/pool/remote_node.h"
#include "expert_node/check_batch.h"
#include "expert_node/expert_model.h"

namespace shoal {
namespace {

constexpr absl::Duration kTendEvery = absl::Seconds(1);
constexpr absl::Duration kLookAgain = absl::Milliseconds(10);

// Rows [first, first + count) of a batch.
ExpertBackend::Batch RowsOf(const ExpertBackend::Batch& batch, int64_t first, int64_t count) {
  const auto per_row = [&batch](auto span) {
    return span.size() / static_cast<size_t>(batch.num_rows);
  };
  const auto part = [&](auto span) {
    const size_t width = per_row(span);
    return span.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(count) * width);
  };
  ExpertBackend::Batch rows{batch.layer, count, part(batch.rows), part(batch.expert_ids),
                            part(batch.expert_weights)};
  rows.call = batch.call;
  rows.arithmetic = batch.arithmetic;
  return rows;
}

}  // namespace

struct PoolBackend::Impl {
  Impl(const Manifest& the_manifest, const PoolOptions& options,
       std::unique_ptr<ExpertBackend> the_local, std::unique_ptr<PoolLayout> the_layout,
       const Clock& the_clock)
      : manifest(the_manifest),
        sizes(ExpertSizes::FromManifest(the_manifest)),
        connect_wait(options.connect_wait),
        node_wait(options.node_wait),
        own(options.own),
        log(options.log),
        arithmetic(options.arithmetic),
        max_nodes(std::max(static_cast<size_t>(options.max_nodes), the_layout->nodes().size())),
        clock(the_clock),
        local(std::move(the_local)),
        audit(options.audit_share > 0 ? std::make_unique<Audit>(options.audit_share, options.log)
                                      : nullptr) {
    MutexLock lock(&mutex);
    layout = std::move(the_layout);
    for (const int64_t layer : sizes.layers) {
      stats.emplace_back().layer = layer;
    }
  }
  ~Impl() {
    {
      MutexLock lock(&mutex);
      stopping = true;
      changed.NotifyAll();
    }
    if (keeper.joinable()) {
      keeper.join();
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Keep();
  absl::Status BeginChange(const PoolPlan& plan);
  absl::Status Call(const PoolLayout& of, const Batch& batch, std::span<const ExpertSlice> slices,
                    std::stop_token stop, std::span<int64_t> out);
  std::shared_ptr<PoolLayout> Layout() const {
    MutexLock lock(&mutex);
    return layout;
  }
  std::vector<std::shared_ptr<PoolLayout>> LivingLayouts();
  void Add(const ExpertLayerStats& cost) {
    MutexLock lock(&mutex);
    stats[*sizes.LayerIndex(cost.layer)] += cost;
  }

  const Manifest& manifest;
  const ExpertSizes sizes;
  const absl::Duration connect_wait;
  const absl::Duration node_wait;
  const SecurityPtr own;
  const std::function<void(absl::string_view line)> log;
  const ExpertArithmetic arithmetic;
  const size_t max_nodes;
  const Clock& clock;
  const std::unique_ptr<ExpertBackend> local;
  const std::unique_ptr<Audit> audit;  // null: there is none
  std::atomic<uint64_t> retractions{0};
  std::atomic<uint64_t> next_id{1};
  mutable Mutex mutex;
  CondVar changed;  // `stopping`
  // Each call keeps the one that it began with, while it can go on by it.
  std::shared_ptr<PoolLayout> layout ABSL_GUARDED_BY(mutex);
  // Those before, while calls keep them.
  std::vector<std::weak_ptr<PoolLayout>> superseded ABSL_GUARDED_BY(mutex);
  bool changing_plan ABSL_GUARDED_BY(mutex) = false;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<ExpertLayerStats> stats ABSL_GUARDED_BY(mutex);
  std::thread keeper;
};

// Opens what is closed and pings what is open, until the pool is closed.
void PoolBackend::Impl::Keep() {
  absl::Time next = clock.Now() + kTendEvery;
  while (true) {
    {
      MutexLock lock(&mutex);
      while (!stopping && clock.Now() < next) {
        changed.WaitWithTimeout(&mutex, next - clock.Now());
      }
      if (stopping) {
        return;
      }
    }
    next = clock.Now() + kTendEvery;
    for (const std::shared_ptr<PoolLayout>& each : LivingLayouts()) {
      each->Tend();
    }
  }
}

std::vector<std::shared_ptr<PoolLayout>> PoolBackend::Impl::LivingLayouts() {
  MutexLock lock(&mutex);
  std::vector<std::shared_ptr<PoolLayout>> living = {layout};
  for (const std::weak_ptr<PoolLayout>& old : superseded) {
    if (std::shared_ptr<PoolLayout> alive = old.lock()) {
      living.push_back(std::move(alive));
    }
  }
  superseded.assign(living.begin() + 1, living.end());
  return living;
}

// Of the rows that one message takes.
absl::Status PoolBackend::Impl::Call(const PoolLayout& of, const Batch& batch,
                                     std::span<const ExpertSlice> slices, std::stop_token stop,
                                     std::span<int64_t> out) {
  const std::shared_ptr<const std::vector<Cell>> cells = of.Cells();
  const LayerCallPool pool{of.nodes(), *cells,    of.plan().epoch, local.get(),
                           clock,      node_wait, next_id,         of.superseded()};
  LayerCall call(pool, batch, slices, stop);
  const absl::Status status = call.Run();
  Add(call.cost());
  SHOAL_RETURN_IF_ERROR(status);
  if (audit != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(const bool wrong, audit->FindsWrong(pool, batch, call.Answers(), stop));
    if (wrong) {
      ++retractions;
      Batch again = batch;
      again.meanwhile = nullptr;
      return Call(of, again, slices, std::move(stop), out);
    }
  }
  call.Collect(out);
  return absl::OkStatus();
}

PoolBackend::PoolBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PoolBackend::~PoolBackend() = default;

absl::StatusOr<std::unique_ptr<PoolBackend>> PoolBackend::Open(const Manifest& manifest,
                                                               PoolOptions options,
                                                               std::unique_ptr<ExpertBackend> local,
                                                               const Clock& clock) {
  PoolLayout::Options layout_options;
  layout_options.connect_wait = options.connect_wait;
  layout_options.grace_wait = options.grace_wait;
  layout_options.has_local = local != nullptr;
  layout_options.own = options.own;
  layout_options.log = options.log;
  layout_options.audits = options.audit_share > 0;
  layout_options.arithmetic = options.arithmetic;
  SHOAL_ASSIGN_OR_RETURN(
      std::unique_ptr<PoolLayout> layout,
      PoolLayout::Connect(manifest, std::move(options.plan), layout_options, clock));
  auto impl = std::make_unique<Impl>(manifest, options, std::move(local), std::move(layout), clock);
  impl->keeper = std::thread([pool = impl.get()] { pool->Keep(); });
  return std::unique_ptr<PoolBackend>(new PoolBackend(std::move(impl)));
}

absl::Status PoolBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                  std::stop_token stop, std::span<int64_t> out) {
  SHOAL_RETURN_IF_ERROR(CheckBatch(impl_->sizes, batch, out));
  SHOAL_RETURN_IF_ERROR(CheckSlices(impl_->sizes.whole(), slices, "slices to compute"));
  if (batch.arithmetic != impl_->arithmetic) {
    return absl::InvalidArgumentError(absl::StrCat(
        "arithmetic is ", std::string(ExpertArithmeticName(batch.arithmetic)),
        "; the pool's streams are ", std::string(ExpertArithmeticName(impl_->arithmetic))));
  }
  std::shared_ptr<PoolLayout> layout = impl_->Layout();
  const auto hidden_size = static_cast<size_t>(impl_->sizes.layout.hidden_size);
  int64_t row = 0;
  std::function<void()> meanwhile = batch.meanwhile;
  while (row < batch.num_rows) {
    const int64_t count = std::min(layout->RowsAtOnce(), batch.num_rows - row);
    Batch part = RowsOf(batch, row, count);
    part.meanwhile = std::exchange(meanwhile, nullptr);
    const absl::Status status = impl_->Call(*layout, part, slices, stop,
                                            out.subspan(static_cast<size_t>(row) * hidden_size,
                                                        static_cast<size_t>(count) * hidden_size));
    if (absl::IsAborted(status) && (layout->superseded() || layout->RowsAtOnce() < count)) {
      layout = impl_->Layout();
      continue;
    }
    SHOAL_RETURN_IF_ERROR(status);
    row += count;
  }
  return absl::OkStatus();
}

// The one change of plan that may be under way at a time.
absl::Status PoolBackend::Impl::BeginChange(const PoolPlan& plan) {
  if (plan.identity.empty()) {
    return absl::FailedPreconditionError(
        "a pool goes over to a plan made by `shoal plan --out`, not to a list of addresses");
  }
  if (const size_t num_nodes = plan.remote().size(); num_nodes > max_nodes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan has ", num_nodes, " nodes, and the memory of this process ",
                     "was planned for ", max_nodes, ": start it again with the new plan"));
  }
  MutexLock lock(&mutex);
  if (changing_plan) {
    return absl::FailedPreconditionError("another change of plan is under way");
  }
  if (plan.epoch <= layout->plan().epoch) {
    return absl::InvalidArgumentError(
        absl::StrCat("the plan has the epoch ", plan.epoch, ", and the one in force has ",
                     layout->plan().epoch, ": a later plan has a larger one"));
  }
  changing_plan = true;
  return absl::OkStatus();
}

absl::Status PoolBackend::ChangePlan(PoolPlan plan, const std::stop_token& stop) {
  SHOAL_RETURN_IF_ERROR(impl_->BeginChange(plan));
  PoolLayout::Options options;
  options.connect_wait = impl_->connect_wait;
  options.has_local = impl_->local != nullptr;
  options.all_must_answer = true;
  options.own = impl_->own;
  options.log = impl_->log;
  options.audits = impl_->audit != nullptr;
  options.arithmetic = impl_->arithmetic;
  options.stop = stop;
  absl::StatusOr<std::unique_ptr<PoolLayout>> next =
      PoolLayout::Connect(impl_->manifest, std::move(plan), options, impl_->clock);
  std::shared_ptr<PoolLayout> last;  // closed without the lock
  MutexLock lock(&impl_->mutex);
  impl_->changing_plan = false;
  SHOAL_RETURN_IF_ERROR(next.status());
  if (stop.stop_requested()) {
    return absl::CancelledError("cancelled; the plan in force stays");
  }
  (*next)->KeepVerdicts(*impl_->layout);
  last = std::exchange(impl_->layout, *std::move(next));
  last->Supersede();
  impl_->superseded.push_back(last);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<PoolLayout>> PoolBackend::LayoutWith(
    const std::string& node_name) const {
  std::shared_ptr<PoolLayout> layout = impl_->Layout();
  if (layout->Find(node_name) == nullptr) {
    std::vector<std::string> names;
    for (const auto& node : layout->nodes()) {
      names.push_back(node->name());
    }
    return absl::NotFoundError(
        absl::StrCat("the pool has no node ", node_name, "; it has ", absl::StrJoin(names, ", ")));
  }
  return layout;
}

absl::StatusOr<std::shared_ptr<PoolLayout>> PoolBackend::SetDrained(const std::string& name,
                                                                    bool drained) {
  while (true) {
    SHOAL_ASSIGN_OR_RETURN(std::shared_ptr<PoolLayout> layout, LayoutWith(name));
    RemoteNode& node = *layout->Find(name);
    if (drained) {
      SHOAL_RETURN_IF_ERROR(layout->CheckDispensable(node));
    }
    // A change of plan takes over what is drained under the same lock.
    MutexLock lock(&impl_->mutex);
    if (impl_->layout == layout) {
      node.SetDrained(drained);
      return layout;
    }
  }
}

absl::Status PoolBackend::DrainNode(const std::string& name, absl::Duration wait,
                                    const std::stop_token& stop) {
  SHOAL_ASSIGN_OR_RETURN(const std::shared_ptr<PoolLayout> layout, SetDrained(name, true));
  RemoteNode& node = *layout->Find(name);
  const absl::Time give_up = impl_->clock.Now() + wait;
  while (node.link().view().bytes_in_flight > 0) {
    if (impl_->clock.Now() >= give_up) {
      return absl::DeadlineExceededError(
          absl::StrCat("node ", name, " gets nothing new, but is still at work on what it got"));
    }
    SHOAL_RETURN_IF_ERROR(WaitUnlessStopped(kLookAgain, stop));
  }
  return absl::OkStatus();
}

absl::Status PoolBackend::UndrainNode(const std::string& name) {
  return SetDrained(name, false).status();
}

uint64_t PoolBackend::Retractions() const { return impl_->retractions; }

std::vector<ExpertLayerStats> PoolBackend::Stats() const {
  std::vector<ExpertLayerStats> stats =
      impl_->local != nullptr ? impl_->local->Stats() : std::vector<ExpertLayerStats>();
  MutexLock lock(&impl_->mutex);
  stats.resize(impl_->stats.size());
  for (size_t i = 0; i < stats.size(); ++i) {
    stats[i].layer = impl_->stats[i].layer;
    stats[i] += impl_->stats[i];
  }
  return stats;
}

std::vector<PoolNodeStatus> PoolBackend::Nodes() const {
  const std::shared_ptr<PoolLayout> layout = impl_->Layout();
  std::vector<PoolNodeStatus> nodes;
  for (const auto& node : layout->nodes()) {
    nodes.push_back(node->Status());
  }
  return nodes;
}

PoolPlan PoolBackend::plan() const { return impl_->Layout()->plan(); }

}  // namespace shoal

#include "coordinator/pool/pool_backend.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "coordinator/pool/cells.h"
#include "coordinator/pool/layer_call.h"
#include "coordinator/pool/remote_node.h"
#include "expert_node/check_batch.h"
#include "expert_node/expert_model.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

constexpr absl::Duration kTendEvery = absl::Seconds(1);

// Rows of one request: the largest chunk of a prefill.
constexpr int64_t kMaxRows = 512;
// What a message has beside its rows or sums.
constexpr uint64_t kMessageOverhead = uint64_t{1} << 20;

uint64_t MaxMessageBytes(const ExpertSizes& sizes) {
  const auto rows = static_cast<uint64_t>(kMaxRows);
  const auto hidden = static_cast<uint64_t>(sizes.layout.hidden_size);
  const auto chosen = static_cast<uint64_t>(sizes.num_experts_per_token);
  return rows * (hidden * sizeof(int64_t) + chosen * 2 * sizeof(int64_t)) + kMessageOverhead;
}

absl::Status CheckNodes(const PoolPlan& plan, const Manifest& manifest) {
  if (!plan.identity.empty()) {
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, manifest));
  }
  std::set<std::string> addresses;
  for (const PoolNode& node : plan.nodes) {
    if (node.address.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", node.name, " of the pool has no address; write it into the plan"));
    }
    if (!addresses.insert(node.address).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the address ", node.address, " is given twice"));
    }
  }
  return addresses.empty() ? absl::InvalidArgumentError("a pool needs at least one node")
                           : absl::OkStatus();
}

// Rows [first, first + count) of a batch.
ExpertBackend::Batch RowsOf(const ExpertBackend::Batch& batch, int64_t first, int64_t count) {
  const auto per_row = [&batch](auto span) {
    return span.size() / static_cast<size_t>(batch.num_rows);
  };
  const auto part = [&](auto span) {
    const size_t width = per_row(span);
    return span.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(count) * width);
  };
  return {batch.layer, count, part(batch.rows), part(batch.expert_ids), part(batch.expert_weights)};
}

}  // namespace

struct PoolBackend::Impl {
  Impl(const Manifest& the_manifest, PoolOptions the_options,
       std::unique_ptr<ExpertBackend> the_local, const Clock& the_clock)
      : sizes(ExpertSizes::FromManifest(the_manifest)),
        options(std::move(the_options)),
        clock(the_clock),
        local(std::move(the_local)) {
    MutexLock lock(&mutex);
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
    // Before what their callbacks use.
    nodes.clear();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  absl::Status Connect(const Manifest& manifest);
  bool AllAnswered() const;
  absl::Status CheckNames() const;
  absl::Status CutCells();
  absl::Status CheckCoverage() const;
  void Keep();
  int64_t RowsAtOnce() const;
  void Add(const ExpertLayerStats& cost);

  const ExpertSizes sizes;
  const PoolOptions options;
  const Clock& clock;
  const std::unique_ptr<ExpertBackend> local;
  std::vector<std::unique_ptr<RemoteNode>> nodes;
  std::vector<Cell> cells;
  std::atomic<uint64_t> next_id{1};
  mutable Mutex mutex;
  CondVar changed;  // a link, or `stopping`
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<ExpertLayerStats> stats ABSL_GUARDED_BY(mutex);
  std::thread keeper;
};

absl::Status PoolBackend::Impl::Connect(const Manifest& manifest) {
  v1::Hello hello;
  *hello.mutable_terms() = MakeTerms(manifest);
  hello.set_epoch(options.plan.epoch);
  for (const PoolNode& planned : options.plan.nodes) {
    nodes.push_back(std::make_unique<RemoteNode>(
        planned, NodeLink::Options{planned.address, MaxMessageBytes(sizes)}, hello, sizes.whole(),
        [this] {
          MutexLock lock(&mutex);
          changed.NotifyAll();
        },
        clock));
  }
  const absl::Time give_up = clock.Now() + options.connect_wait;
  absl::Time next_try = clock.Now();
  while (!AllAnswered() && clock.Now() < give_up) {
    if (clock.Now() >= next_try) {
      next_try = clock.Now() + kTendEvery / 4;
      std::for_each(nodes.begin(), nodes.end(), [](const auto& node) { node->Tend(); });
    }
    MutexLock lock(&mutex);
    changed.WaitWithTimeout(&mutex, kTendEvery / 20);
  }
  return absl::OkStatus();
}

bool PoolBackend::Impl::AllAnswered() const {
  return std::all_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node->state() != NodeState::kLost || !node->Refusal().ok();
  });
}

absl::Status PoolBackend::Impl::CheckNames() const {
  std::map<std::string, std::string> addresses;
  for (const auto& node : nodes) {
    SHOAL_RETURN_IF_ERROR(node->Refusal());
    const auto [it, is_new] = addresses.emplace(node->name(), node->address());
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("two nodes call themselves ", node->name(),
                                                     ": ", it->second, " and ", node->address(),
                                                     "; start one with another --name"));
    }
  }
  return absl::OkStatus();
}

absl::Status PoolBackend::Impl::CutCells() {
  const ExpertSlice whole = sizes.whole();
  std::vector<Holdings> holdings;
  for (const auto& node : nodes) {
    SHOAL_RETURN_IF_ERROR(CheckSlices(whole, node->planned().stored(), node->name()));
    Holdings held{node->slices(), node->planned().slices};
    if (held.slices.empty()) {
      // It has not answered yet; what the plan gives it, it will have when it does.
      held.slices = node->planned().stored();
    }
    holdings.push_back(std::move(held));
  }
  cells = MakeCells(whole, holdings);
  // A request names each of its cells, and nodes take no more slices at once.
  if (cells.size() > static_cast<size_t>(RequestRules::kMaxSlices)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the slices of the nodes cross each other so that the experts fall into ", cells.size(),
        " parts; at most ", RequestRules::kMaxSlices, " are accepted: shard by a simpler plan"));
  }
  if (local != nullptr) {
    for (Cell& cell : cells) {
      cell.holders.push_back(nodes.size());
    }
  }
  return CheckCoverage();
}

absl::Status PoolBackend::Impl::CheckCoverage() const {
  std::vector<std::string> silent;
  for (const auto& node : nodes) {
    if (node->state() == NodeState::kLost) {
      silent.push_back(absl::StrCat(node->name(), " at ", node->address(), " (",
                                    node->Status().last_error, ")"));
    }
  }
  for (const Cell& cell : cells) {
    const bool held = std::any_of(cell.holders.begin(), cell.holders.end(), [this](size_t holder) {
      return holder == nodes.size() || nodes[holder]->state() != NodeState::kLost;
    });
    if (!held) {
      return absl::UnavailableError(absl::StrCat(
          "no node holds ", FormatSlice(cell.slice),
          silent.empty() ? "; add a node that does, or make the partitions again"
                         : absl::StrCat("; without an answer: ", absl::StrJoin(silent, ", "))));
    }
  }
  return absl::OkStatus();
}

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
    std::for_each(nodes.begin(), nodes.end(), [](const auto& node) { node->Tend(); });
  }
}

int64_t PoolBackend::Impl::RowsAtOnce() const {
  int64_t rows = kMaxRows;
  for (const auto& node : nodes) {
    const int64_t limit = node->max_rows();
    rows = limit > 0 ? std::min(rows, limit) : rows;
  }
  return rows;
}

void PoolBackend::Impl::Add(const ExpertLayerStats& cost) {
  MutexLock lock(&mutex);
  stats[*sizes.LayerIndex(cost.layer)] += cost;
}

PoolBackend::PoolBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PoolBackend::~PoolBackend() = default;

absl::StatusOr<std::unique_ptr<PoolBackend>> PoolBackend::Open(const Manifest& manifest,
                                                               PoolOptions options,
                                                               std::unique_ptr<ExpertBackend> local,
                                                               const Clock& clock) {
  SHOAL_RETURN_IF_ERROR(CheckNodes(options.plan, manifest));
  auto impl = std::make_unique<Impl>(manifest, std::move(options), std::move(local), clock);
  SHOAL_RETURN_IF_ERROR(impl->Connect(manifest));
  SHOAL_RETURN_IF_ERROR(impl->CheckNames());
  SHOAL_RETURN_IF_ERROR(impl->CutCells());
  impl->keeper = std::thread([pool = impl.get()] { pool->Keep(); });
  return std::unique_ptr<PoolBackend>(new PoolBackend(std::move(impl)));
}

absl::Status PoolBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                  std::stop_token stop, std::span<int64_t> out) {
  SHOAL_RETURN_IF_ERROR(CheckBatch(impl_->sizes, batch, out));
  SHOAL_RETURN_IF_ERROR(CheckSlices(impl_->sizes.whole(), slices, "slices to compute"));
  const LayerCallPool pool{impl_->nodes,
                           impl_->cells,
                           impl_->local.get(),
                           impl_->clock,
                           impl_->options.plan.epoch,
                           impl_->options.node_wait,
                           impl_->next_id};
  const int64_t rows_at_once = impl_->RowsAtOnce();
  const auto hidden_size = static_cast<size_t>(impl_->sizes.layout.hidden_size);
  for (int64_t row = 0; row < batch.num_rows; row += rows_at_once) {
    const int64_t count = std::min(rows_at_once, batch.num_rows - row);
    const Batch part = RowsOf(batch, row, count);
    const absl::Time begin = impl_->clock.Now();
    LayerCall call(pool, part, slices, stop);
    const absl::Status status = call.Run(out.subspan(static_cast<size_t>(row) * hidden_size,
                                                     static_cast<size_t>(count) * hidden_size));
    ExpertLayerStats cost = call.cost();
    cost.wait_time = impl_->clock.Now() - begin - call.local_time();
    impl_->Add(cost);
    SHOAL_RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

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
  std::vector<PoolNodeStatus> nodes;
  for (const auto& node : impl_->nodes) {
    nodes.push_back(node->Status());
  }
  return nodes;
}

}  // namespace shoal

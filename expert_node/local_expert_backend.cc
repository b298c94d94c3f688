#include "expert_node/local_expert_backend.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_cache.h"
#include "expert_node/expert_executor.h"
#include "expert_node/expert_fetch.h"
#include "expert_node/expert_model.h"
#include "expert_node/expert_store.h"
#include "expert_node/io_threads.h"
#include "expert_node/pread_record_reader.h"

namespace shoal {
namespace {

// Enough reads in flight for an NVMe drive to reach its sequential rate with records of megabytes.
constexpr int kDefaultIoThreads = 4;

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

// The rows of a batch by the expert they chose.
struct RowsByExpert {
  std::vector<int64_t> experts;  // distinct, increasing
  std::vector<std::vector<ExpertRow>> rows;
};

RowsByExpert GroupByExpert(const ExpertBackend::Batch& batch, int64_t num_experts) {
  const size_t per_row = batch.expert_ids.size() / static_cast<size_t>(batch.num_rows);
  std::vector<std::vector<ExpertRow>> all(static_cast<size_t>(num_experts));
  for (size_t i = 0; i < batch.expert_ids.size(); ++i) {
    all[static_cast<size_t>(batch.expert_ids[i])].push_back(
        {static_cast<int64_t>(i / per_row), batch.expert_weights[i]});
  }
  RowsByExpert grouped;
  for (size_t expert = 0; expert < all.size(); ++expert) {
    if (!all[expert].empty()) {
      grouped.experts.push_back(static_cast<int64_t>(expert));
      grouped.rows.push_back(std::move(all[expert]));
    }
  }
  return grouped;
}

std::vector<BankLocation> LocateBanks(const Container& container) {
  std::vector<BankLocation> banks;
  for (const BankEntry& bank : container.manifest().banks) {
    const std::string file = BankFile(bank.layer);
    banks.push_back(
        {bank.layer, container.PathOf(file), container.manifest().FindFile(file)->size_bytes});
  }
  return banks;
}

}  // namespace

struct LocalExpertBackend::Impl {
  Impl(ExpertModel the_model, const Clock& the_clock, int num_io_threads)
      : model(std::move(the_model)), clock(the_clock), io(num_io_threads) {
    MutexLock lock(&mutex);
    for (const int64_t layer : model.layers) {
      stats.emplace_back().layer = layer;
    }
  }

  absl::Status CheckBatch(const Batch& batch, std::span<const UnitRange> ranges,
                          std::span<int64_t> out) const;
  absl::Status CheckRanges(std::span<const UnitRange> ranges) const;
  absl::Status Run(const Batch& batch, std::span<const UnitRange> ranges, ExpertFetch& fetch,
                   const RowsByExpert& grouped, ExpertLayerStats& cost, std::span<int64_t> out);
  void Add(const ExpertLayerStats& cost, const ExpertFetch::Counts& counts);

  const ExpertModel model;
  const Clock& clock;
  std::unique_ptr<ExpertStore> store;
  std::unique_ptr<ExpertCache> cache;
  std::unique_ptr<ExpertExecutor> executor;
  mutable Mutex mutex;
  std::vector<ExpertLayerStats> stats ABSL_GUARDED_BY(mutex);
  IoThreads io;  // last: its jobs use what is above
};

absl::Status LocalExpertBackend::Impl::CheckRanges(std::span<const UnitRange> ranges) const {
  int64_t end = 0;
  for (const UnitRange& range : ranges) {
    if (range.begin < end || range.end < range.begin || range.end > model.layout.num_units) {
      return absl::InvalidArgumentError(
          absl::StrCat("units [", range.begin, ", ", range.end, ") of ", model.layout.num_units,
                       ": ranges must lie inside, increase, and not overlap"));
    }
    end = range.end;
  }
  return absl::OkStatus();
}

absl::Status LocalExpertBackend::Impl::CheckBatch(const Batch& batch,
                                                  std::span<const UnitRange> ranges,
                                                  std::span<int64_t> out) const {
  if (!model.LayerIndex(batch.layer)) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", batch.layer, " has no experts"));
  }
  const auto rows = static_cast<size_t>(std::max<int64_t>(batch.num_rows, 0));
  const auto hidden_size = static_cast<size_t>(model.layout.hidden_size);
  const auto per_row = static_cast<size_t>(model.num_experts_per_token);
  if (rows == 0 || batch.rows.size() / hidden_size != rows ||
      batch.rows.size() % hidden_size != 0 || out.size() != batch.rows.size() ||
      batch.expert_ids.size() / per_row != rows || batch.expert_ids.size() % per_row != 0 ||
      batch.expert_weights.size() != batch.expert_ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch of ", batch.num_rows, " rows: ", batch.rows.size(), " activations, ", out.size(),
        " sums, ", batch.expert_ids.size(), " expert ids and ", batch.expert_weights.size(),
        " weights; a row has ", hidden_size, " activations and ", per_row, " experts"));
  }
  for (const int32_t expert : batch.expert_ids) {
    if (expert < 0 || expert >= model.num_experts) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", batch.layer, " expert ", expert,
                                                     " of ", model.num_experts,
                                                     ": there is no such expert"));
    }
  }
  if (!AllFinite(batch.rows) || !AllFinite(batch.expert_weights)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", batch.layer, ": an activation or an expert weight is NaN or infinite"));
  }
  return CheckRanges(ranges);
}

absl::Status LocalExpertBackend::Impl::Run(const Batch& batch, std::span<const UnitRange> ranges,
                                           ExpertFetch& fetch, const RowsByExpert& grouped,
                                           ExpertLayerStats& cost, std::span<int64_t> out) {
  size_t done = 0;
  while (done < grouped.experts.size()) {
    const absl::Time before_wait = clock.Now();
    SHOAL_ASSIGN_OR_RETURN(std::vector<ExpertFetch::Ready> ready, fetch.Next());
    // By expert: an error names the first of those that failed together, not of those that arrived.
    std::sort(ready.begin(), ready.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    const absl::Time before_compute = clock.Now();
    std::vector<ExpertWork> work;
    for (const ExpertFetch::Ready& expert : ready) {
      work.push_back(
          {grouped.experts[expert.index], expert.pin.record(), grouped.rows[expert.index]});
    }
    SHOAL_RETURN_IF_ERROR(executor->Apply(batch.layer, work, ranges, batch.rows, out));
    done += ready.size();
    cost.wait_time += before_compute - before_wait;
    cost.compute_time += clock.Now() - before_compute;
  }
  return absl::OkStatus();
}

void LocalExpertBackend::Impl::Add(const ExpertLayerStats& cost,
                                   const ExpertFetch::Counts& counts) {
  MutexLock lock(&mutex);
  ExpertLayerStats& layer = stats[*model.LayerIndex(cost.layer)];
  layer.expert_hits += counts.hits;
  layer.expert_misses += counts.misses;
  layer.expert_reads += counts.reads.reads;
  layer.expert_bytes += counts.reads.bytes;
  layer.wait_time += cost.wait_time;
  layer.compute_time += cost.compute_time;
}

LocalExpertBackend::LocalExpertBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalExpertBackend::~LocalExpertBackend() = default;

int64_t LocalExpertBackend::MinCacheRecords(const ModelConfig& config) {
  return config.moe.num_experts_per_token;
}

uint64_t LocalExpertBackend::ScratchBytes(const Manifest& manifest, int num_threads) {
  return ExpertExecutor::ScratchBytes(manifest.unit_layout, num_threads);
}

absl::StatusOr<std::unique_ptr<LocalExpertBackend>> LocalExpertBackend::Open(
    const Container& container, const Options& options, ThreadPool& pool, const Clock& clock) {
  const int64_t least = MinCacheRecords(container.config());
  if (options.cache_records < least) {
    return absl::FailedPreconditionError(
        absl::StrCat("a cache of ", options.cache_records, " expert records; the experts of one ",
                     "token are ", least, ", so at least ", least, " are needed"));
  }
  SHOAL_ASSIGN_OR_RETURN(ExpertModel model, ExpertModel::FromContainer(container));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<PreadRecordReader> reader,
                         PreadRecordReader::Open(LocateBanks(container)));
  auto impl = std::make_unique<Impl>(
      std::move(model), clock, options.io_threads > 0 ? options.io_threads : kDefaultIoThreads);
  impl->store = std::make_unique<ExpertStore>(impl->model.layout, std::move(reader));
  SHOAL_ASSIGN_OR_RETURN(
      impl->cache, ExpertCache::Create(impl->model.layout.record_bytes, options.cache_records));
  SHOAL_ASSIGN_OR_RETURN(impl->executor, ExpertExecutor::Create(impl->model, pool));
  return std::unique_ptr<LocalExpertBackend>(new LocalExpertBackend(std::move(impl)));
}

absl::Status LocalExpertBackend::Execute(const Batch& batch, std::span<const UnitRange> ranges,
                                         std::stop_token stop, std::span<int64_t> out) {
  SHOAL_RETURN_IF_ERROR(impl_->CheckBatch(batch, ranges, out));
  const RowsByExpert grouped = GroupByExpert(batch, impl_->model.num_experts);
  ExpertLayerStats cost;
  cost.layer = batch.layer;
  ExpertFetch fetch(*impl_->cache, *impl_->store, impl_->io);
  fetch.Start(batch.layer, grouped.experts, std::move(stop));
  const absl::Status status = impl_->Run(batch, ranges, fetch, grouped, cost, out);
  impl_->Add(cost, fetch.counts());
  return status;
}

std::vector<ExpertLayerStats> LocalExpertBackend::Stats() const {
  MutexLock lock(&impl_->mutex);
  return impl_->stats;
}

ExpertIoMode LocalExpertBackend::io_mode() const {
  const ReaderMode reader = impl_->store->Mode();
  ExpertIoMode mode;
  mode.direct = reader.direct;
  mode.engine = reader.engine;
  mode.why_not_direct = reader.why_not_direct;
  mode.cache_records = impl_->cache->num_slots();
  mode.cache_bytes = impl_->cache->size_bytes();
  return mode;
}

}  // namespace shoal

#include "expert_node/local_expert_backend.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "expert_node/check_batch.h"
#include "expert_node/expert_cache.h"
#include "expert_node/expert_executor.h"
#include "expert_node/expert_fetch.h"
#include "expert_node/expert_model.h"
#include "expert_node/expert_store.h"
#include "expert_node/io_threads.h"

namespace shoal {
namespace {

// Enough reads in flight for an NVMe drive to reach its sequential rate with records of megabytes.
constexpr int kDefaultIoThreads = 4;

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

// One expert's share of a call: what is read of one record and computed.
struct Share {
  RecordPart part;
  size_t group = 0;  // into RowsByExpert
};

// Adds a range to those of a record that are wanted, as one with a range that it touches: units
// that lie side by side are one read.
void AddRange(UnitRange range, std::vector<UnitRange>& ranges) {
  const auto touches = [&range](const UnitRange& other) {
    return other.begin <= range.end && range.begin <= other.end;
  };
  for (auto it = std::find_if(ranges.begin(), ranges.end(), touches); it != ranges.end();
       it = std::find_if(ranges.begin(), ranges.end(), touches)) {
    range = {std::min(range.begin, it->begin), std::max(range.end, it->end)};
    ranges.erase(it);
  }
  ranges.push_back(range);
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

  absl::Status CheckHeld(std::span<const ExpertSlice> slices) const;
  std::vector<Share> ShareOut(int64_t layer, const RowsByExpert& grouped,
                              std::span<const ExpertSlice> slices) const;
  absl::Status Run(const Batch& batch, const std::vector<Share>& shares, ExpertFetch& fetch,
                   const RowsByExpert& grouped, ExpertLayerStats& cost, std::span<int64_t> out);
  void Add(const ExpertLayerStats& cost, const ExpertFetch::Counts& counts);

  const ExpertModel model;
  const Clock& clock;
  std::vector<std::unique_ptr<ExpertStore>> stores;  // one a slice
  std::vector<ExpertSlice> held;                     // their slices
  std::unique_ptr<ExpertCache> cache;
  std::unique_ptr<ExpertExecutor> executor;
  mutable Mutex mutex;
  std::vector<ExpertLayerStats> stats ABSL_GUARDED_BY(mutex);
  IoThreads io;  // last: its jobs use what is above
};

absl::Status LocalExpertBackend::Impl::CheckHeld(std::span<const ExpertSlice> slices) const {
  SHOAL_RETURN_IF_ERROR(CheckSlices(model.whole(), slices, "slices to compute"));
  for (const ExpertSlice& slice : slices) {
    SHOAL_RETURN_IF_ERROR(CheckHolds(held, slice));
  }
  return absl::OkStatus();
}

std::vector<Share> LocalExpertBackend::Impl::ShareOut(int64_t layer, const RowsByExpert& grouped,
                                                      std::span<const ExpertSlice> slices) const {
  std::vector<Share> shares;
  for (size_t group = 0; group < grouped.experts.size(); ++group) {
    const int64_t expert = grouped.experts[group];
    for (size_t i = 0; i < held.size(); ++i) {
      std::vector<UnitRange> ranges;
      for (const ExpertSlice& slice : slices) {
        const ExpertSlice of_expert{slice.units, {expert, expert + 1}};
        const ExpertSlice common = Intersect(of_expert, Intersect(slice, held[i]));
        if (!common.empty()) {
          AddRange(common.units, ranges);
        }
      }
      for (const UnitRange& units : ranges) {
        shares.push_back({{{layer, expert, i}, units}, group});
      }
    }
  }
  return shares;
}

absl::Status LocalExpertBackend::Impl::Run(const Batch& batch, const std::vector<Share>& shares,
                                           ExpertFetch& fetch, const RowsByExpert& grouped,
                                           ExpertLayerStats& cost, std::span<int64_t> out) {
  size_t done = 0;
  while (done < shares.size()) {
    const absl::Time before_wait = clock.Now();
    SHOAL_ASSIGN_OR_RETURN(std::vector<ExpertFetch::Ready> ready, fetch.Next());
    // By expert: an error names the first of those that failed together, not of those that arrived.
    std::sort(ready.begin(), ready.end(),
              [](const auto& a, const auto& b) { return a.index < b.index; });
    const absl::Time before_compute = clock.Now();
    std::vector<ExpertWork> work;
    work.reserve(ready.size());
    for (const ExpertFetch::Ready& arrived : ready) {
      const Share& share = shares[arrived.index];
      work.push_back(
          {share.part.record.expert, share.part.units, arrived.units, grouped.rows[share.group]});
    }
    SHOAL_RETURN_IF_ERROR(executor->Apply(batch.layer, batch.arithmetic, work, batch.rows, out));
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
  layer += cost;
  layer.expert_hits += counts.hits;
  layer.expert_misses += counts.misses;
  layer.expert_reads += counts.reads.reads;
  layer.expert_bytes += counts.reads.bytes;
}

LocalExpertBackend::LocalExpertBackend(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalExpertBackend::~LocalExpertBackend() = default;

int64_t LocalExpertBackend::MinCacheRecords(const ModelConfig& config, int64_t num_slices) {
  return config.moe.num_experts_per_token * num_slices;
}

uint64_t LocalExpertBackend::ScratchBytes(const Manifest& manifest, int num_threads) {
  return ExpertExecutor::ScratchBytes(manifest.unit_layout, num_threads);
}

absl::StatusOr<std::unique_ptr<LocalExpertBackend>> LocalExpertBackend::Open(
    ExpertModel model, std::vector<SliceSource> slices, const Options& options, ThreadPool& pool,
    const Clock& clock) {
  auto impl = std::make_unique<Impl>(
      std::move(model), clock, options.io_threads > 0 ? options.io_threads : kDefaultIoThreads);
  uint64_t largest_record = 0;
  for (const SliceSource& source : slices) {
    impl->held.push_back(source.slice);
    largest_record = std::max(largest_record, source.largest_read_bytes());
  }
  SHOAL_RETURN_IF_ERROR(CheckSlices(impl->model.whole(), impl->held, "slices to hold"));
  const int64_t least = impl->model.num_experts_per_token * std::ssize(slices);
  if (options.cache_records < least) {
    return absl::FailedPreconditionError(
        absl::StrCat("a cache of ", options.cache_records, " expert records; the experts of one ",
                     "token are ", least, ", so at least ", least, " are needed"));
  }
  for (SliceSource& source : slices) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader,
                           OpenReader(source, options.wrap_reader));
    impl->stores.push_back(
        std::make_unique<ExpertStore>(impl->model.layout, std::move(source), std::move(reader)));
  }
  SHOAL_ASSIGN_OR_RETURN(impl->cache, ExpertCache::Create(largest_record, options.cache_records));
  SHOAL_ASSIGN_OR_RETURN(impl->executor,
                         ExpertExecutor::Create(impl->model, options.kernels,
                                                options.splits.value_or(ExpertSplits::Usual(
                                                    impl->model.layout, pool.num_threads())),
                                                pool));
  return std::unique_ptr<LocalExpertBackend>(new LocalExpertBackend(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<LocalExpertBackend>> LocalExpertBackend::Open(
    const Container& container, const Options& options, ThreadPool& pool, const Clock& clock) {
  SHOAL_ASSIGN_OR_RETURN(ExpertModel model, ExpertModel::FromContainer(container));
  std::vector<SliceSource> slices = {SliceOfContainer(container, model.whole())};
  return Open(std::move(model), std::move(slices), options, pool, clock);
}

absl::Status LocalExpertBackend::Execute(const Batch& batch, std::span<const ExpertSlice> slices,
                                         std::stop_token stop, std::span<int64_t> out) {
  SHOAL_RETURN_IF_ERROR(CheckBatch(impl_->model, batch, out));
  SHOAL_RETURN_IF_ERROR(impl_->CheckHeld(slices));
  const RowsByExpert grouped = GroupByExpert(batch, impl_->model.num_experts);
  const std::vector<Share> shares = impl_->ShareOut(batch.layer, grouped, slices);
  std::vector<RecordPart> parts;
  parts.reserve(shares.size());
  for (const Share& share : shares) {
    parts.push_back(share.part);
  }
  ExpertLayerStats cost;
  cost.layer = batch.layer;
  ExpertFetch fetch(*impl_->cache, impl_->stores, impl_->io);
  fetch.Start(std::move(parts), std::move(stop));
  if (batch.meanwhile) {
    batch.meanwhile();
  }
  absl::Status status = impl_->Run(batch, shares, fetch, grouped, cost, out);
  impl_->Add(cost, fetch.counts());
  return status;
}

std::vector<ExpertLayerStats> LocalExpertBackend::Stats() const {
  MutexLock lock(&impl_->mutex);
  return impl_->stats;
}

ExpertIoMode LocalExpertBackend::io_mode() const {
  ExpertIoMode mode;
  mode.direct = true;
  for (const auto& store : impl_->stores) {
    const ReaderMode reader = store->Mode();
    mode.direct = mode.direct && reader.direct;
    mode.engine = reader.engine;
    if (mode.why_not_direct.empty()) {
      mode.why_not_direct = reader.why_not_direct;
    }
  }
  mode.cache_records = impl_->cache->num_slots();
  mode.cache_bytes = impl_->cache->size_bytes();
  return mode;
}

}  // namespace shoal

#include "expert_node/node_probe.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/io/aligned_buffer.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"

namespace shoal {
namespace {

// As many as a backend reads at a time.
constexpr int kReaders = 4;

// A row that is not zero, and the first experts of a slice, as many as a row chooses.
struct ProbeBatch {
  ProbeBatch(const ExpertModel& model, const ExpertSlice& slice)
      : rows(static_cast<size_t>(model.layout.hidden_size)),
        ids(static_cast<size_t>(model.num_experts_per_token)),
        weights(ids.size(), 1.0F / static_cast<float>(ids.size())),
        layer(model.layers.front()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = i % 2 == 0 ? 0.5F : -0.25F;
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(slice.experts.begin +
                                    static_cast<int64_t>(i) % slice.experts.size());
    }
  }
  ExpertBackend::Batch View() const { return {layer, 1, rows, ids, weights}; }

  std::vector<float> rows;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  int64_t layer;
};

absl::Duration ComputeTime(const ExpertBackend& backend) {
  absl::Duration time;
  for (const ExpertLayerStats& stats : backend.Stats()) {
    time += stats.compute_time;
  }
  return time;
}

// Reads records in random order until it is over, an error, or others' error.
class RandomReads {
 public:
  RandomReads(const HeldUnits& units, absl::Time end, const Clock& clock)
      : units_(units), end_(end), clock_(clock) {}

  void Run(uint32_t seed) {
    const absl::Status status = ReadUntilEnd(seed);
    if (!status.ok()) {
      MutexLock lock(&mutex_);
      status_ = status;
      failed_ = true;
    }
  }
  uint64_t bytes() const { return bytes_; }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  absl::Status ReadUntilEnd(uint32_t seed) {
    SHOAL_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                           AlignedBuffer::Allocate(units_.largest_read_bytes()));
    std::mt19937 random(seed);
    const auto below = [&random](size_t count) { return random() % count; };
    do {
      ExpertStore& store = *units_.stores()[below(units_.stores().size())];
      const SliceSource& source = store.source();
      const int64_t layer = source.banks[below(source.banks.size())].layer;
      const int64_t expert =
          source.slice.experts.begin +
          static_cast<int64_t>(below(static_cast<size_t>(source.slice.experts.size())));
      ReadCounts counts;
      SHOAL_RETURN_IF_ERROR(
          store.ReadRecord({layer, expert}, buffer.bytes().first(source.read_bytes), counts));
      bytes_ += counts.bytes;
    } while (clock_.Now() < end_ && !failed_);
    return absl::OkStatus();
  }

  const HeldUnits& units_;
  const absl::Time end_;
  const Clock& clock_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

uint64_t PerSecond(uint64_t bytes, absl::Duration time) {
  const double seconds = std::max(absl::ToDoubleSeconds(time), 1e-9);
  return static_cast<uint64_t>(static_cast<double>(bytes) / seconds);
}

}  // namespace

absl::Status ProbeExperts(ExpertBackend& backend, const ExpertModel& model,
                          const HeldUnits& units) {
  for (const ExpertSlice& slice : units.slices()) {
    const ProbeBatch batch(model, slice);
    std::vector<int64_t> sums(batch.rows.size());
    SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> MeasureReadRate(const HeldUnits& units, absl::Duration duration,
                                         const Clock& clock) {
  const absl::Time start = clock.Now();
  RandomReads reads(units, start + duration, clock);
  std::vector<std::thread> readers;
  for (uint32_t seed = 1; seed <= kReaders; ++seed) {
    readers.emplace_back([&reads, seed] { reads.Run(seed); });
  }
  for (std::thread& reader : readers) {
    reader.join();
  }
  SHOAL_RETURN_IF_ERROR(reads.status());
  return PerSecond(reads.bytes(), clock.Now() - start);
}

absl::StatusOr<uint64_t> MeasureComputeRate(ExpertBackend& backend, const ExpertModel& model,
                                            const HeldUnits& units, absl::Duration duration,
                                            const Clock& clock) {
  const ExpertSlice& slice = units.slices().front();
  const ProbeBatch batch(model, slice);
  std::vector<int64_t> sums(batch.rows.size());
  SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));  // into the cache
  const absl::Duration before = ComputeTime(backend);
  const absl::Time end = clock.Now() + duration;
  uint64_t bytes = 0;
  do {
    SHOAL_RETURN_IF_ERROR(backend.Execute(batch.View(), {&slice, 1}, {}, sums));
    bytes += batch.ids.size() * static_cast<uint64_t>(slice.units.size()) * model.layout.unit_bytes;
  } while (clock.Now() < end);
  return PerSecond(bytes, ComputeTime(backend) - before);
}

}  // namespace shoal

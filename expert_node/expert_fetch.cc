#include "expert_node/expert_fetch.h"

#include <utility>

namespace shoal {

ExpertFetch::ExpertFetch(ExpertCache& cache, Stores stores, IoThreads& io)
    : cache_(cache), stores_(stores), io_(io) {}

ExpertFetch::~ExpertFetch() {
  on_stop_.reset();
  GiveUp();
  const size_t withdrawn = io_.Withdraw(this);
  MutexLock lock(&mutex_);
  pending_ -= withdrawn;
  ready_.clear();
  while (pending_ > 0) {
    changed_.Wait(&mutex_);
    ready_.clear();
  }
}

void ExpertFetch::GiveUp() {
  give_up_.request_stop();
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
}

void ExpertFetch::Start(std::vector<RecordPart> parts, std::stop_token stop) {
  parts_ = std::move(parts);
  stop_ = stop;
  on_stop_.emplace(std::move(stop), [this] { GiveUp(); });
  std::vector<size_t> absent;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < parts_.size(); ++i) {
      ExpertCache::Pin pin = cache_.TryPin(parts_[i]);
      if (pin) {
        ++counts_.hits;
        ready_.push_back(MakeReady(i, std::move(pin)));
      } else {
        absent.push_back(i);
      }
    }
    pending_ = absent.size();
  }
  for (const size_t index : absent) {
    io_.Submit(this, [this, index] { FetchOne(index); });
  }
}

void ExpertFetch::FetchOne(size_t index) {
  const RecordPart& part = parts_[index];
  const RecordKey& record = part.record;
  ReadCounts reads;
  auto loaded = cache_.PinOrLoad(
      part,
      [&](std::span<std::byte> slot) {
        return stores_[record.slice]->ReadUnits({record.layer, record.expert}, part.units, slot,
                                                reads);
      },
      give_up_.get_token());
  if (!loaded.ok()) {
    // Moved: the packaged Abseil counts references where the thread sanitizer cannot see it.
    Fail(std::move(loaded).status(), reads);
    return;
  }
  MutexLock lock(&mutex_);
  ++(loaded->was_loaded ? counts_.misses : counts_.hits);
  ready_.push_back(MakeReady(index, std::move(loaded->pin)));
  Finish(reads);
}

ExpertFetch::Ready ExpertFetch::MakeReady(size_t index, ExpertCache::Pin pin) const {
  const RecordPart& part = parts_[index];
  const SliceSource& source = stores_[part.record.slice]->source();
  const uint64_t first_unit =
      source.ReadOf(part.record.expert, pin.units()).units_offset_bytes +
      static_cast<uint64_t>(part.units.begin - pin.units().begin) * source.unit_bytes;
  const std::span<const std::byte> units = pin.record().subspan(
      first_unit, static_cast<uint64_t>(part.units.size()) * source.unit_bytes);
  return {index, std::move(pin), units};
}

void ExpertFetch::Fail(absl::Status status, const ReadCounts& reads) {
  {
    // Before anyone gives up because of it, so that the first error is the one reported.
    MutexLock lock(&mutex_);
    status_.Update(std::move(status));
  }
  GiveUp();
  MutexLock lock(&mutex_);
  counts_.misses += reads.reads > 0 ? 1 : 0;
  Finish(reads);
}

void ExpertFetch::Finish(const ReadCounts& reads) {
  counts_.reads.reads += reads.reads;
  counts_.reads.bytes += reads.bytes;
  --pending_;
  changed_.NotifyAll();
}

absl::StatusOr<std::vector<ExpertFetch::Ready>> ExpertFetch::Next() {
  MutexLock lock(&mutex_);
  while (ready_.empty() && pending_ > 0 && status_.ok() && !stop_.stop_requested()) {
    changed_.Wait(&mutex_);
  }
  if (stop_.stop_requested()) {
    return absl::CancelledError("cancelled while experts were read");
  }
  if (!status_.ok()) {
    return status_;
  }
  return std::exchange(ready_, {});
}

ExpertFetch::Counts ExpertFetch::counts() {
  MutexLock lock(&mutex_);
  return counts_;
}

}  // namespace shoal

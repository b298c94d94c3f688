#include "expert_node/expert_cache.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace shoal {

ExpertCache::Pin::Pin(Pin&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      slot_(other.slot_),
      record_(other.record_),
      units_(other.units_) {}

ExpertCache::Pin& ExpertCache::Pin::operator=(Pin&& other) noexcept {
  if (this != &other) {
    Release();
    cache_ = std::exchange(other.cache_, nullptr);
    slot_ = other.slot_;
    record_ = other.record_;
    units_ = other.units_;
  }
  return *this;
}

void ExpertCache::Pin::Release() {
  if (cache_ != nullptr) {
    std::exchange(cache_, nullptr)->Unpin(slot_);
  }
}

ExpertCache::ExpertCache(AlignedBuffer arena, uint64_t record_bytes, size_t num_slots)
    : arena_(std::move(arena)), record_bytes_(record_bytes), num_slots_(num_slots) {
  MutexLock lock(&mutex_);
  slots_.resize(num_slots);
  for (size_t slot = 0; slot < num_slots; ++slot) {
    MakeIdle(slot, /*most_recent=*/true);
  }
}

ExpertCache::~ExpertCache() = default;

absl::StatusOr<std::unique_ptr<ExpertCache>> ExpertCache::Create(uint64_t record_bytes,
                                                                 int64_t num_slots) {
  uint64_t size_bytes = 0;
  if (num_slots < 1 || __builtin_mul_overflow(record_bytes, num_slots, &size_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("expert cache of ", num_slots, " records of ",
                                                   record_bytes, " bytes: not a usable size"));
  }
  SHOAL_ASSIGN_OR_RETURN(AlignedBuffer arena, AlignedBuffer::Allocate(size_bytes));
  return std::unique_ptr<ExpertCache>(
      new ExpertCache(std::move(arena), record_bytes, static_cast<size_t>(num_slots)));
}

std::span<std::byte> ExpertCache::RecordOf(size_t slot) {
  return arena_.bytes().subspan(slot * record_bytes_, record_bytes_);
}

void ExpertCache::MakeIdle(size_t slot, bool most_recent) {
  slots_[slot].idle = idle_.insert(most_recent ? idle_.end() : idle_.begin(), slot);
}

ExpertCache::Pin ExpertCache::PinSlot(size_t slot) {
  if (slots_[slot].pins++ == 0) {
    idle_.erase(slots_[slot].idle);
  }
  return Pin(this, slot, RecordOf(slot), slots_[slot].part.units);
}

void ExpertCache::Unpin(size_t slot) {
  MutexLock lock(&mutex_);
  if (--slots_[slot].pins == 0) {
    MakeIdle(slot, /*most_recent=*/true);
    changed_.NotifyAll();
  }
}

size_t ExpertCache::Find(const RecordPart& part) const {
  size_t found = num_slots_;
  const auto it = index_.find(part.record);
  if (it == index_.end()) {
    return found;
  }
  for (const size_t slot : it->second) {
    const UnitRange& units = slots_[slot].part.units;
    if (units.begin > part.units.begin || units.end < part.units.end) {
      continue;
    }
    if (slots_[slot].state == SlotState::kReady) {
      return slot;
    }
    found = slot;
  }
  return found;
}

void ExpertCache::RemoveFromIndex(size_t slot) {
  const auto it = index_.find(slots_[slot].part.record);
  it->second.erase(std::find(it->second.begin(), it->second.end(), slot));
  if (it->second.empty()) {
    index_.erase(it);
  }
}

ExpertCache::Pin ExpertCache::TryPin(const RecordPart& part) {
  MutexLock lock(&mutex_);
  const size_t slot = Find(part);
  if (slot == num_slots_ || slots_[slot].state != SlotState::kReady) {
    return Pin();
  }
  return PinSlot(slot);
}

size_t ExpertCache::TakeSlot(const RecordPart& part) {
  const size_t slot = idle_.front();
  idle_.pop_front();
  if (slots_[slot].state == SlotState::kReady) {
    RemoveFromIndex(slot);
  }
  slots_[slot].state = SlotState::kLoading;
  slots_[slot].part = part;
  slots_[slot].pins = 1;
  index_[part.record].push_back(slot);
  return slot;
}

absl::StatusOr<size_t> ExpertCache::WaitForTurn(const RecordPart& part,
                                                const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const size_t slot = Find(part);
    if (slot != num_slots_ && slots_[slot].state == SlotState::kReady) {
      return slot;
    }
    if (slot == num_slots_ && !idle_.empty()) {
      return num_slots_;
    }
    changed_.Wait(&mutex_);
  }
  return absl::CancelledError("cancelled while waiting for an expert");
}

absl::StatusOr<ExpertCache::Loaded> ExpertCache::PinOrLoad(
    const RecordPart& part, absl::FunctionRef<absl::Status(std::span<std::byte>)> load,
    const std::stop_token& stop) {
  // Takes the mutex, so that a request cannot slip in between a waiter's look and its wait.
  const std::stop_callback wake(stop, [this] {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  });
  size_t slot = 0;
  {
    MutexLock lock(&mutex_);
    SHOAL_ASSIGN_OR_RETURN(slot, WaitForTurn(part, stop));
    if (slot != num_slots_) {
      return Loaded{PinSlot(slot), false};
    }
    slot = TakeSlot(part);
  }
  const absl::Status status = load(RecordOf(slot));
  MutexLock lock(&mutex_);
  changed_.NotifyAll();
  if (!status.ok()) {
    RemoveFromIndex(slot);
    slots_[slot].state = SlotState::kEmpty;
    slots_[slot].pins = 0;
    MakeIdle(slot, /*most_recent=*/false);
    return status;
  }
  slots_[slot].state = SlotState::kReady;
  return Loaded{Pin(this, slot, RecordOf(slot), part.units), true};
}

}  // namespace shoal

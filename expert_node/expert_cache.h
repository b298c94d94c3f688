// Expert records in memory: a bounded arena of slots for one record each, or a part of one, least
// recently used out first.
#ifndef SHOAL_EXPERT_NODE_EXPERT_CACHE_H_
#define SHOAL_EXPERT_NODE_EXPERT_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/unit_layout.h"
#include "common/io/aligned_buffer.h"
#include "common/sync/mutex.h"

namespace shoal {

// One record: an expert's part of one of the slices that are held.
struct RecordKey {
  int64_t layer = 0;
  int64_t expert = 0;
  size_t slice = 0;
  bool operator==(const RecordKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H hash, const RecordKey& key) {
    return H::combine(std::move(hash), key.layer, key.expert, key.slice);
  }
};

// What a slot has or should have of a record: the whole, or some of its units.
struct RecordPart {
  RecordKey record;
  UnitRange units;
};

// Thread-safe. Outlives its pins.
class ExpertCache {
 public:
  // Keeps one record in its place for as long as it lives. Move-only; empty when default-made.
  class Pin {
   public:
    Pin() = default;
    Pin(Pin&& other) noexcept;
    Pin& operator=(Pin&& other) noexcept;
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { Release(); }

    explicit operator bool() const { return cache_ != nullptr; }
    // The slot: record_bytes of Create, aligned to kRecordAlignment.
    std::span<const std::byte> record() const { return record_; }
    // What was loaded: at least what was asked for.
    UnitRange units() const { return units_; }

   private:
    friend class ExpertCache;
    Pin(ExpertCache* cache, size_t slot, std::span<const std::byte> record, UnitRange units)
        : cache_(cache), slot_(slot), record_(record), units_(units) {}
    void Release();

    ExpertCache* cache_ = nullptr;
    size_t slot_ = 0;
    std::span<const std::byte> record_;
    UnitRange units_;
  };

  // Allocates `num_slots` records of `record_bytes` (a multiple of kRecordAlignment) at once; the
  // system hands out their pages as they are first used. RESOURCE_EXHAUSTED where it refuses.
  static absl::StatusOr<std::unique_ptr<ExpertCache>> Create(uint64_t record_bytes,
                                                             int64_t num_slots);
  ~ExpertCache();

  // Does not wait: an empty pin where no slot has all of these units, loaded.
  Pin TryPin(const RecordPart& part);

  struct Loaded {
    Pin pin;
    bool was_loaded = false;  // by this call
  };
  // Pins a slot that has all of these units. Where there is none, takes the least recently used slot
  // that nobody pins (or waits for one) and has `load` fill it with them; while another thread loads
  // them, waits for that. Units that two calls load as parts of different ranges are here twice.
  // A caller that holds pins while it waits here can deadlock.
  //   CANCELLED   `stop` was requested
  //   and `load`'s errors; the slot is free again, and others who waited load for themselves
  absl::StatusOr<Loaded> PinOrLoad(const RecordPart& part,
                                   absl::FunctionRef<absl::Status(std::span<std::byte>)> load,
                                   const std::stop_token& stop);

  int64_t num_slots() const { return static_cast<int64_t>(num_slots_); }
  uint64_t size_bytes() const { return arena_.size_bytes(); }

 private:
  enum class SlotState { kEmpty, kLoading, kReady };
  struct Slot {
    SlotState state = SlotState::kEmpty;
    RecordPart part;
    int64_t pins = 0;
    std::list<size_t>::iterator idle;  // its place in idle_, where pins is 0
  };

  ExpertCache(AlignedBuffer arena, uint64_t record_bytes, size_t num_slots);
  std::span<std::byte> RecordOf(size_t slot);
  Pin PinSlot(size_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unpin(size_t slot);
  void MakeIdle(size_t slot, bool most_recent) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A slot that has `part` or is loading it, one that has it first; num_slots_ where there is none.
  size_t Find(const RecordPart& part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveFromIndex(size_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes an idle slot for `part` and marks it as loading, pinned once; idle_ is not empty.
  size_t TakeSlot(const RecordPart& part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits until `part` is ready (its slot), or absent with a slot to spare (num_slots_), or `stop`.
  absl::StatusOr<size_t> WaitForTurn(const RecordPart& part, const std::stop_token& stop)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  AlignedBuffer arena_;
  const uint64_t record_bytes_;
  const size_t num_slots_;
  Mutex mutex_;
  CondVar changed_;  // a slot became idle or ready
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::list<size_t> idle_ ABSL_GUARDED_BY(mutex_);  // unpinned slots, next to be taken first
  // Loading and ready slots, each record's together.
  absl::flat_hash_map<RecordKey, absl::InlinedVector<size_t, 1>> index_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_CACHE_H_

// Records that arrive damaged, however often they are read.
#ifndef SHOAL_EXPERT_NODE_DRILL_CORRUPT_READS_H_
#define SHOAL_EXPERT_NODE_DRILL_CORRUPT_READS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/sync/mutex.h"
#include "expert_node/record_reader.h"

namespace shoal {

// Which reads of a node are damaged: the first two of each of the next so many records, because a
// store reads a damaged record twice. Thread-safe.
class CorruptReads {
 public:
  // The next `records` records that are read.
  void Begin(int64_t records);
  void End();

  // A place that is read: a reader and an offset in a layer's bank.
  struct Place {
    const void* reader = nullptr;
    int64_t layer = 0;
    uint64_t offset_bytes = 0;
    bool operator==(const Place&) const = default;
    template <typename H>
    friend H AbslHashValue(H hash, const Place& place) {
      return H::combine(std::move(hash), place.reader, place.layer, place.offset_bytes);
    }
  };
  // Whether this read is to be damaged; counts it.
  bool Take(const Place& place);

 private:
  Mutex mutex_;
  int64_t records_ ABSL_GUARDED_BY(mutex_) = 0;               // to be damaged yet
  absl::flat_hash_set<Place> again_ ABSL_GUARDED_BY(mutex_);  // damaged once
};

// Another reader, some of whose reads are damaged on the way.
class CorruptedReader final : public RecordReader {
 public:
  // `corrupt` outlives the reader.
  CorruptedReader(std::unique_ptr<RecordReader> reader, CorruptReads& corrupt)
      : reader_(std::move(reader)), corrupt_(corrupt) {}

  absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                    ReadCounts& counts) override;
  std::string PathOf(int64_t layer) const override { return reader_->PathOf(layer); }
  ReaderMode Mode() const override { return reader_->Mode(); }

 private:
  const std::unique_ptr<RecordReader> reader_;
  CorruptReads& corrupt_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_DRILL_CORRUPT_READS_H_

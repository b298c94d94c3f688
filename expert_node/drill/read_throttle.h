// Reads as slow as those of a slower disk.
#ifndef SHOAL_EXPERT_NODE_DRILL_READ_THROTTLE_H_
#define SHOAL_EXPERT_NODE_DRILL_READ_THROTTLE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "expert_node/record_reader.h"

namespace shoal {

// A disk that gives so many bytes a second to all its readers together, one after another in the
// order in which they ask. Time in which nobody asks is lost. Thread-safe.
class ReadThrottle {
 public:
  // Blocks the thread that calls it; for tests.
  using Sleep = std::function<void(absl::Duration)>;

  // `bytes_per_second` is not 0. `clock` outlives the throttle.
  ReadThrottle(uint64_t bytes_per_second, const Clock& clock);
  ReadThrottle(uint64_t bytes_per_second, const Clock& clock, Sleep sleep);

  // Takes a place in the queue: when a read of `bytes` that is asked for now is done.
  absl::Time Reserve(uint64_t bytes);
  // Blocks until then.
  void WaitUntil(absl::Time time) const;

 private:
  const uint64_t bytes_per_second_;
  const Clock& clock_;
  const Sleep sleep_;
  Mutex mutex_;
  absl::Time free_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Another reader, held to a throttle.
class ThrottledReader final : public RecordReader {
 public:
  // `throttle` outlives the reader.
  ThrottledReader(std::unique_ptr<RecordReader> reader, ReadThrottle& throttle)
      : reader_(std::move(reader)), throttle_(throttle) {}

  absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                    ReadCounts& counts) override;
  std::string PathOf(int64_t layer) const override { return reader_->PathOf(layer); }
  ReaderMode Mode() const override { return reader_->Mode(); }

 private:
  const std::unique_ptr<RecordReader> reader_;
  ReadThrottle& throttle_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_DRILL_READ_THROTTLE_H_

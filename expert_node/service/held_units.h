// The units that a node holds, read for others in bulk: checked bytes as they are on disk.
#ifndef SHOAL_EXPERT_NODE_SERVICE_HELD_UNITS_H_
#define SHOAL_EXPERT_NODE_SERVICE_HELD_UNITS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/expert_slice.h"
#include "common/container/unit_layout.h"
#include "common/io/aligned_buffer.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_store.h"
#include "expert_node/slice_source.h"

namespace shoal {

// Thread-safe. Its own descriptors and one record's buffer, so that a copy in bulk takes nothing
// from the expert cache.
class HeldUnits {
 public:
  // Opens every bank of every slice; `slices` are disjoint. OpenReader's errors.
  static absl::StatusOr<std::unique_ptr<HeldUnits>> Open(const UnitLayout& layout,
                                                         std::vector<SliceSource> slices,
                                                         const WrapReader& wrap_reader = {});

  // In the order given to Open.
  const std::vector<ExpertSlice>& slices() const { return held_; }

  // Replaces `out` with these units of one expert, in order, with headers and checksums:
  // units.size() x unit size. The units are held. Blocks; calls take turns.
  //   and ExpertStore::ReadRecord's errors
  absl::Status Read(ExpertKey key, UnitRange units, std::string* out);

  // The largest read: what the buffer takes.
  uint64_t largest_read_bytes() const { return record_bytes_; }
  // One for each slice, for measuring.
  std::span<const std::unique_ptr<ExpertStore>> stores() const { return stores_; }

 private:
  explicit HeldUnits(const UnitLayout& layout) : layout_(layout) {}

  const UnitLayout layout_;
  std::vector<ExpertSlice> held_;
  std::vector<std::unique_ptr<ExpertStore>> stores_;
  uint64_t record_bytes_ = 0;
  Mutex mutex_;
  AlignedBuffer record_ ABSL_GUARDED_BY(mutex_);  // made at the first read: few nodes are copied
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_HELD_UNITS_H_

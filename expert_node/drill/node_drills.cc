#include "expert_node/drill/node_drills.h"

#include <utility>

#include "common/container/unit_layout.h"
#include "expert_node/slice_source.h"

namespace shoal {

NodeDrills::NodeDrills(uint64_t read_bytes_per_second, const Clock& clock) : slowdown_(clock) {
  if (read_bytes_per_second > 0) {
    throttle_ = std::make_unique<ReadThrottle>(read_bytes_per_second, clock);
  }
}

WrapReader NodeDrills::wrap_reader() {
  return [this](const SliceSource& source, std::unique_ptr<RecordReader> reader) {
    if (throttle_ != nullptr) {
      reader = std::make_unique<ThrottledReader>(std::move(reader), *throttle_);
    }
    // The first byte after a unit's header.
    reader = std::make_unique<CorruptedReader>(std::move(reader), corrupt_,
                                               source.units_offset_bytes + kUnitHeaderBytes);
    return reader;
  };
}

}  // namespace shoal

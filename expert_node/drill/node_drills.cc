#include "expert_node/drill/node_drills.h"

#include <utility>

namespace shoal {

NodeDrills::NodeDrills(uint64_t read_bytes_per_second, const Clock& clock) : slowdown_(clock) {
  if (read_bytes_per_second > 0) {
    throttle_ = std::make_unique<ReadThrottle>(read_bytes_per_second, clock);
  }
}

WrapReader NodeDrills::wrap_reader() {
  return [this](std::unique_ptr<RecordReader> reader) {
    if (throttle_ != nullptr) {
      reader = std::make_unique<ThrottledReader>(std::move(reader), *throttle_);
    }
    return std::make_unique<CorruptedReader>(std::move(reader), corrupt_);
  };
}

}  // namespace shoal

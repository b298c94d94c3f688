// The faults of one node that are made on purpose, for trying a pool.
#ifndef SHOAL_EXPERT_NODE_DRILL_NODE_DRILLS_H_
#define SHOAL_EXPERT_NODE_DRILL_NODE_DRILLS_H_

#include <cstdint>
#include <memory>

#include "common/sync/clock.h"
#include "expert_node/drill/corrupt_reads.h"
#include "expert_node/drill/read_throttle.h"
#include "expert_node/drill/slowdown.h"
#include "expert_node/record_reader.h"

namespace shoal {

// Thread-safe. Outlives the readers that it wraps.
class NodeDrills {
 public:
  // `read_bytes_per_second` for all disk reads of the node together; 0: as fast as the disk is.
  // `clock` outlives this.
  NodeDrills(uint64_t read_bytes_per_second, const Clock& clock);

  // Puts throttle and damage between a store and its disk.
  WrapReader wrap_reader();

  CorruptReads& corrupt() { return corrupt_; }
  Slowdown& slowdown() { return slowdown_; }

 private:
  std::unique_ptr<ReadThrottle> throttle_;  // absent: as fast as the disk is
  CorruptReads corrupt_;
  Slowdown slowdown_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_DRILL_NODE_DRILLS_H_

// Where the records of a slice of the experts lie on disk: in a container's banks of whole experts,
// or in a partition's banks, which hold nothing else.
#ifndef SHOAL_EXPERT_NODE_SLICE_SOURCE_H_
#define SHOAL_EXPERT_NODE_SLICE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/partition.h"
#include "common/container/unit_layout.h"
#include "expert_node/pread_record_reader.h"
#include "expert_node/record_reader.h"

namespace shoal {

// What one read brings: units of one expert, and before and after them what alignment adds.
struct UnitsRead {
  uint64_t offset_bytes = 0;        // in the bank
  uint64_t size_bytes = 0;          // both are multiples of kRecordAlignment
  uint64_t units_offset_bytes = 0;  // of the first unit in what was read
};

struct SliceSource {
  ExpertSlice slice;
  std::vector<BankLocation> banks;  // of every MoE layer
  uint64_t unit_bytes = 0;
  int64_t first_expert = 0;   // whose record is a bank's first
  uint64_t stride_bytes = 0;  // from one expert's record to the next one's; aligned like reads
  uint64_t slice_offset_bytes = 0;  // of the slice's first unit in an expert's record

  // The one read that brings `units`, which lie inside the slice, of one of its experts.
  UnitsRead ReadOf(int64_t expert, UnitRange units) const;
  // Of all its units; no read is larger.
  uint64_t largest_read_bytes() const {
    return ReadOf(slice.experts.begin, slice.units).size_bytes;
  }
};

// A slice (inside the model, not empty) read from the banks of a whole container.
SliceSource SliceOfContainer(const Container& container, const ExpertSlice& slice);
// One of a partition's slices(), read from its own banks.
SliceSource SliceOfPartition(const Partition& partition, size_t slice_index);

// Opens the banks of a slice, behind what `wrap_reader` (absent: nothing) puts before them.
// PreadRecordReader::Open's errors.
absl::StatusOr<std::unique_ptr<RecordReader>> OpenReader(const SliceSource& source,
                                                         const WrapReader& wrap_reader);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SLICE_SOURCE_H_

// Where the records of a slice of the experts lie on disk: in a container's banks of whole experts,
// or in a partition's banks, which hold nothing else.
#ifndef SHOAL_EXPERT_NODE_SLICE_SOURCE_H_
#define SHOAL_EXPERT_NODE_SLICE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/partition.h"
#include "expert_node/pread_record_reader.h"
#include "expert_node/record_reader.h"

namespace shoal {

// A record here is what one read brings for one expert: the slice's units, and before and after
// them what alignment adds.
struct SliceSource {
  ExpertSlice slice;
  std::vector<BankLocation> banks;  // of every MoE layer
  int64_t first_expert = 0;         // whose record is a bank's first
  uint64_t stride_bytes = 0;        // from one expert's record in a bank to the next one's
  uint64_t read_offset_bytes = 0;   // of the read in an expert's record; these three are multiples
  uint64_t read_bytes = 0;          // of kRecordAlignment
  uint64_t units_offset_bytes = 0;  // of the slice's first unit in what was read

  // Offset in the bank of what is read for an expert of the slice.
  uint64_t ReadOffset(int64_t expert) const {
    return static_cast<uint64_t>(expert - first_expert) * stride_bytes + read_offset_bytes;
  }
  // The bytes of `units`, which lie inside the slice, in what was read.
  std::span<const std::byte> UnitsIn(std::span<const std::byte> record, const UnitLayout& layout,
                                     UnitRange units) const {
    return record.subspan(
        units_offset_bytes +
            static_cast<uint64_t>(units.begin - slice.units.begin) * layout.unit_bytes,
        static_cast<uint64_t>(units.size()) * layout.unit_bytes);
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

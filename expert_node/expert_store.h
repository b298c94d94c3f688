// Units of the experts of one slice from disk, checked.
#ifndef SHOAL_EXPERT_NODE_EXPERT_STORE_H_
#define SHOAL_EXPERT_NODE_EXPERT_STORE_H_

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "common/container/unit_layout.h"
#include "expert_node/record_reader.h"
#include "expert_node/slice_source.h"

namespace shoal {

// Thread-safe.
class ExpertStore {
 public:
  // `reader` reads the banks of `source`.
  ExpertStore(const UnitLayout& layout, SliceSource source, std::unique_ptr<RecordReader> reader);

  // Reads `units`, which lie inside the slice, of one of its experts in one piece, and checks header
  // and checksum of each. Where one fails they are read once more: a transfer can be damaged where
  // the disk is not. `buffer` has at least the bytes of source().ReadOf, aligned to
  // kRecordAlignment; they begin there, and are unspecified after an error.
  // `counts` grows by every read.
  //   DATA_LOSS   failed twice, or the file ends; names file, layer, expert and (checksum) unit
  //   and the reader's errors, with layer and expert
  absl::Status ReadUnits(ExpertKey key, UnitRange units, std::span<std::byte> buffer,
                         ReadCounts& counts);

  const SliceSource& source() const { return source_; }
  ReaderMode Mode() const { return reader_->Mode(); }

 private:
  absl::Status CheckUnits(ExpertKey key, UnitRange units, std::span<const std::byte> bytes) const;

  const UnitLayout layout_;
  const SliceSource source_;
  const std::unique_ptr<RecordReader> reader_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_STORE_H_

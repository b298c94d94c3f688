// Records of one slice from disk, checked.
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

  // Reads one expert's record in one piece and checks header and checksum of every unit of the
  // slice. A record that fails is read once more: a transfer can be damaged where the disk is not.
  // `record` has source().read_bytes, aligned to kRecordAlignment; its content is unspecified after
  // an error.
  // `counts` grows by every read.
  //   DATA_LOSS   failed twice, or the file ends; names file, layer, expert and (checksum) unit
  //   and the reader's errors, with layer and expert
  absl::Status ReadRecord(ExpertKey key, std::span<std::byte> record, ReadCounts& counts);

  const SliceSource& source() const { return source_; }
  ReaderMode Mode() const { return reader_->Mode(); }

 private:
  absl::Status CheckRecord(ExpertKey key, std::span<const std::byte> record) const;

  const UnitLayout layout_;
  const SliceSource source_;
  const std::unique_ptr<RecordReader> reader_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_EXPERT_STORE_H_

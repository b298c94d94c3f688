#include "expert_node/slice_source.h"

#include <string>
#include <utility>

#include "common/status/status_macros.h"

namespace shoal {

SliceSource SliceOfContainer(const Container& container, const ExpertSlice& slice) {
  const Manifest& manifest = container.manifest();
  const UnitLayout& layout = manifest.unit_layout;
  const uint64_t begin = static_cast<uint64_t>(slice.units.begin) * layout.unit_bytes;
  const uint64_t end = static_cast<uint64_t>(slice.units.end) * layout.unit_bytes;
  SliceSource source;
  source.slice = slice;
  source.stride_bytes = layout.record_bytes;
  source.read_offset_bytes = begin / kRecordAlignment * kRecordAlignment;
  source.read_bytes = AlignUp(end, kRecordAlignment) - source.read_offset_bytes;
  source.units_offset_bytes = begin - source.read_offset_bytes;
  for (const BankEntry& bank : manifest.banks) {
    const std::string file = BankFile(bank.layer);
    source.banks.push_back(
        {bank.layer, container.PathOf(file), manifest.FindFile(file)->size_bytes});
  }
  return source;
}

SliceSource SliceOfPartition(const Partition& partition, size_t slice_index) {
  SliceSource source;
  source.slice = partition.slices()[slice_index];
  source.first_expert = source.slice.experts.begin;
  source.stride_bytes = partition.RecordBytes(slice_index);
  source.read_bytes = source.stride_bytes;
  for (const BankEntry& bank : partition.manifest().banks) {
    source.banks.push_back({bank.layer, partition.BankPath(slice_index, bank.layer),
                            partition.BankBytes(slice_index)});
  }
  return source;
}

absl::StatusOr<std::unique_ptr<RecordReader>> OpenReader(const SliceSource& source,
                                                         const WrapReader& wrap_reader) {
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader,
                         PreadRecordReader::Open(source.banks));
  return wrap_reader ? wrap_reader(source, std::move(reader)) : std::move(reader);
}

}  // namespace shoal

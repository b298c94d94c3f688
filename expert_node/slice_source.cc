#include "expert_node/slice_source.h"

#include <string>
#include <utility>

#include "common/status/status_macros.h"

namespace shoal {

UnitsRead SliceSource::ReadOf(int64_t expert, UnitRange units) const {
  const uint64_t record = static_cast<uint64_t>(expert - first_expert) * stride_bytes;
  const uint64_t begin =
      slice_offset_bytes + static_cast<uint64_t>(units.begin - slice.units.begin) * unit_bytes;
  const uint64_t end = begin + static_cast<uint64_t>(units.size()) * unit_bytes;
  const uint64_t aligned = begin / kRecordAlignment * kRecordAlignment;
  return {record + aligned, AlignUp(end, kRecordAlignment) - aligned, begin - aligned};
}

SliceSource SliceOfContainer(const Container& container, const ExpertSlice& slice) {
  const Manifest& manifest = container.manifest();
  const UnitLayout& layout = manifest.unit_layout;
  SliceSource source;
  source.slice = slice;
  source.unit_bytes = layout.unit_bytes;
  source.stride_bytes = layout.record_bytes;
  source.slice_offset_bytes = static_cast<uint64_t>(slice.units.begin) * layout.unit_bytes;
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
  source.unit_bytes = partition.manifest().unit_layout.unit_bytes;
  source.first_expert = source.slice.experts.begin;
  source.stride_bytes = partition.RecordBytes(slice_index);
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
  return wrap_reader ? wrap_reader(std::move(reader)) : std::move(reader);
}

}  // namespace shoal

#include "expert_node/service/held_units.h"

#include <algorithm>
#include <utility>

#include "common/status/status_macros.h"

namespace shoal {

absl::StatusOr<std::unique_ptr<HeldUnits>> HeldUnits::Open(const UnitLayout& layout,
                                                           std::vector<SliceSource> slices,
                                                           const WrapReader& wrap_reader) {
  std::unique_ptr<HeldUnits> units(new HeldUnits(layout));
  for (SliceSource& source : slices) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader, OpenReader(source, wrap_reader));
    units->held_.push_back(source.slice);
    units->record_bytes_ = std::max(units->record_bytes_, source.largest_read_bytes());
    units->stores_.push_back(
        std::make_unique<ExpertStore>(layout, std::move(source), std::move(reader)));
  }
  return units;
}

absl::Status HeldUnits::Read(ExpertKey key, UnitRange units, std::string* out) {
  out->resize(static_cast<uint64_t>(units.size()) * layout_.unit_bytes);
  MutexLock lock(&mutex_);
  if (record_.size_bytes() == 0) {
    SHOAL_ASSIGN_OR_RETURN(record_, AlignedBuffer::Allocate(record_bytes_));
  }
  for (const std::unique_ptr<ExpertStore>& store : stores_) {
    const SliceSource& source = store->source();
    const ExpertSlice common = Intersect(source.slice, {units, {key.expert, key.expert + 1}});
    if (common.empty()) {
      continue;
    }
    ReadCounts counts;
    SHOAL_RETURN_IF_ERROR(store->ReadUnits(key, common.units, record_.bytes(), counts));
    const std::span<const std::byte> bytes =
        record_.bytes().subspan(source.ReadOf(key.expert, common.units).units_offset_bytes,
                                static_cast<uint64_t>(common.units.size()) * layout_.unit_bytes);
    const uint64_t place =
        static_cast<uint64_t>(common.units.begin - units.begin) * layout_.unit_bytes;
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(out->data() + place));
  }
  return absl::OkStatus();
}

}  // namespace shoal

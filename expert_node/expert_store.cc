#include "expert_node/expert_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

ExpertStore::ExpertStore(const UnitLayout& layout, SliceSource source,
                         std::unique_ptr<RecordReader> reader)
    : layout_(layout), source_(std::move(source)), reader_(std::move(reader)) {}

absl::Status ExpertStore::ReadUnits(ExpertKey key, UnitRange units, std::span<std::byte> buffer,
                                    ReadCounts& counts) {
  constexpr int kAttempts = 2;
  const UnitsRead read = source_.ReadOf(key.expert, units);
  const std::span<std::byte> bytes = buffer.first(read.size_bytes);
  absl::Status damage;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(Annotate(reader_->Read(key.layer, read.offset_bytes, bytes, counts),
                                   absl::StrCat("layer ", key.layer, " expert ", key.expert)));
    damage = CheckUnits(key, units, bytes.subspan(read.units_offset_bytes));
    if (damage.ok()) {
      return damage;
    }
  }
  return absl::Status(
      damage.code(),
      absl::StrCat(reader_->PathOf(key.layer), ": ", damage.message(),
                   "; it was read twice, so the file is damaged: restore it from a copy or "
                   "convert again"));
}

absl::Status ExpertStore::CheckUnits(ExpertKey key, UnitRange units,
                                     std::span<const std::byte> bytes) const {
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const auto place = static_cast<uint64_t>(unit - units.begin) * layout_.unit_bytes;
    SHOAL_RETURN_IF_ERROR(CheckUnit(layout_, key, unit, bytes.subspan(place, layout_.unit_bytes)));
  }
  return absl::OkStatus();
}

}  // namespace shoal

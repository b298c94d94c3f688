#include "expert_node/expert_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

ExpertStore::ExpertStore(const UnitLayout& layout, SliceSource source,
                         std::unique_ptr<RecordReader> reader)
    : layout_(layout), source_(std::move(source)), reader_(std::move(reader)) {}

absl::Status ExpertStore::ReadRecord(ExpertKey key, std::span<std::byte> record,
                                     ReadCounts& counts) {
  constexpr int kAttempts = 2;
  const uint64_t offset_bytes = source_.ReadOffset(key.expert);
  absl::Status damage;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    SHOAL_RETURN_IF_ERROR(Annotate(reader_->Read(key.layer, offset_bytes, record, counts),
                                   absl::StrCat("layer ", key.layer, " expert ", key.expert)));
    damage = CheckRecord(key, record);
    if (damage.ok()) {
      return damage;
    }
  }
  return absl::Status(
      damage.code(),
      absl::StrCat(reader_->PathOf(key.layer), ": ", damage.message(),
                   "; the record was read twice, so the file is damaged: restore it from a copy or "
                   "convert again"));
}

absl::Status ExpertStore::CheckRecord(ExpertKey key, std::span<const std::byte> record) const {
  for (int64_t unit = source_.slice.units.begin; unit < source_.slice.units.end; ++unit) {
    SHOAL_RETURN_IF_ERROR(
        CheckUnit(layout_, key, unit, source_.UnitsIn(record, layout_, {unit, unit + 1})));
  }
  return absl::OkStatus();
}

}  // namespace shoal

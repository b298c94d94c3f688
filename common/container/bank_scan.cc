#include "common/container/bank_scan.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/file.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"

namespace shoal {

uint64_t RecordBytes(const UnitLayout& layout, UnitRange units) {
  return AlignUp(static_cast<uint64_t>(units.size()) * layout.unit_bytes, kRecordAlignment);
}

BankRange WholeBank(const UnitLayout& layout, std::string path, int64_t layer,
                    const ExpertSlice& slice) {
  BankRange range;
  range.path = std::move(path);
  range.layer = layer;
  range.slice = slice;
  range.stride_bytes = RecordBytes(layout, slice.units);
  range.padding_bytes =
      range.stride_bytes - static_cast<uint64_t>(slice.units.size()) * layout.unit_bytes;
  return range;
}

BankRange PartOfBank(const UnitLayout& layout, std::string path, int64_t layer,
                     const ExpertSlice& slice) {
  BankRange range;
  range.path = std::move(path);
  range.layer = layer;
  range.slice = slice;
  range.stride_bytes = layout.record_bytes;
  range.offset_bytes = static_cast<uint64_t>(slice.experts.begin) * layout.record_bytes +
                       static_cast<uint64_t>(slice.units.begin) * layout.unit_bytes;
  return range;
}

absl::Status ScanBank(
    const UnitLayout& layout, const BankRange& range,
    absl::FunctionRef<absl::Status(ExpertKey key, int64_t unit, std::span<const std::byte> bytes)>
        on_unit,
    absl::FunctionRef<absl::Status(ExpertKey key, std::span<const std::byte>)> on_padding) {
  SHOAL_ASSIGN_OR_RETURN(const UniqueFd fd, OpenForRead(range.path));
  // Unit by unit: what follows from a hostile config's sizes need not fit memory.
  std::vector<std::byte> buffer(std::max(layout.unit_bytes, kRecordAlignment));
  const ExpertSlice& slice = range.slice;
  const uint64_t units_bytes = static_cast<uint64_t>(slice.units.size()) * layout.unit_bytes;
  for (int64_t expert = slice.experts.begin; expert < slice.experts.end; ++expert) {
    const ExpertKey key{range.layer, expert};
    const uint64_t begin = range.offset_bytes +
                           static_cast<uint64_t>(expert - slice.experts.begin) * range.stride_bytes;
    uint64_t offset = begin;
    const auto bytes = std::span(buffer).first(layout.unit_bytes);
    for (int64_t unit = slice.units.begin; unit < slice.units.end; ++unit) {
      SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, range.path, offset, bytes));
      SHOAL_RETURN_IF_ERROR(on_unit(key, unit, bytes));
      offset += bytes.size();
    }
    const auto padding = std::span(buffer).first(range.padding_bytes);
    SHOAL_RETURN_IF_ERROR(ReadExactAt(fd, range.path, offset, padding));
    SHOAL_RETURN_IF_ERROR(on_padding(key, padding));
    DropPageCache(fd, begin, units_bytes + range.padding_bytes);
  }
  return absl::OkStatus();
}

absl::Status CheckUnitDigest(const UnitLayout& layout, ExpertKey key, int64_t unit,
                             std::span<const std::byte> bytes, absl::string_view leaves,
                             const std::string& path) {
  SHOAL_RETURN_IF_ERROR(Annotate(CheckUnit(layout, key, unit, bytes), path));
  const Sha256Digest digest = Sha256::Of(bytes);
  const size_t leaf = static_cast<size_t>(key.expert * layout.num_units + unit) * digest.size();
  if (absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()) !=
      leaves.substr(leaf, digest.size())) {
    return absl::DataLossError(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                            " unit ", unit,
                                            " differs from its digest in the tree"));
  }
  return absl::OkStatus();
}

absl::Status CheckPadding(ExpertKey key, std::span<const std::byte> padding,
                          const std::string& path) {
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return absl::DataLossError(absl::StrCat(path, ": layer ", key.layer, " expert ", key.expert,
                                            ": the padding after its units is not zero"));
  }
  return absl::OkStatus();
}

}  // namespace shoal

#include "common/container/partition_source.h"

#include <vector>

#include "common/container/bank_scan.h"
#include "common/container/directory_files.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"

namespace shoal {

absl::StatusOr<std::string> ContainerSource::ReadManifestText() {
  return ReadTextFile(container_.PathOf(kManifestFile), kMaxManifestBytes);
}

absl::StatusOr<std::string> ContainerSource::ReadCodebooks() {
  SHOAL_ASSIGN_OR_RETURN(const std::vector<LayerCodebooks> books, container_.ReadCodebooks());
  const auto bytes = std::as_bytes(std::span(books));
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

absl::StatusOr<std::string> ContainerSource::ReadLeaves(const BankEntry& bank) {
  return ReadTreeFile(container_.PathOf(BankTreeFile(bank.layer)), manifest(), bank);
}

absl::Status ContainerSource::ReadUnits(int64_t layer, const ExpertSlice& slice,
                                        absl::string_view leaves, OnUnit on_unit) {
  const UnitLayout& layout = manifest().unit_layout;
  const BankRange bank = PartOfBank(layout, container_.PathOf(BankFile(layer)), layer, slice);
  return ScanBank(
      layout, bank,
      [&](ExpertKey key, int64_t unit, std::span<const std::byte> bytes) -> absl::Status {
        SHOAL_RETURN_IF_ERROR(CheckUnitDigest(layout, key, unit, bytes, leaves, bank.path));
        return on_unit(key, unit, bytes);
      },
      [](ExpertKey /*key*/, std::span<const std::byte> /*padding*/) { return absl::OkStatus(); });
}

}  // namespace shoal

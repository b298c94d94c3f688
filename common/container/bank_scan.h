// A walk over the units of a slice in one bank file, of a container or of a partition.
#ifndef SHOAL_COMMON_CONTAINER_BANK_SCAN_H_
#define SHOAL_COMMON_CONTAINER_BANK_SCAN_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"
#include "common/container/unit_layout.h"

namespace shoal {

// Where the units of a slice lie in the bank of one layer.
struct BankRange {
  std::string path;
  int64_t layer = 0;
  ExpertSlice slice;
  uint64_t offset_bytes = 0;   // of the first expert's first unit in the file
  uint64_t stride_bytes = 0;   // from one expert's first unit to the next one's
  uint64_t padding_bytes = 0;  // to look at after each expert's units; less than kRecordAlignment
};

// Bytes of one expert's units of the slice in a bank that holds nothing else: a multiple of
// kRecordAlignment. The slice's units are inside the layout.
uint64_t RecordBytes(const UnitLayout& layout, UnitRange units);

// A bank file that holds exactly the slice: one record an expert, with its padding. A container's
// bank is that of all units of all experts.
BankRange WholeBank(const UnitLayout& layout, std::string path, int64_t layer,
                    const ExpertSlice& slice);
// The slice's units in a container's bank of whole experts, without padding.
BankRange PartOfBank(const UnitLayout& layout, std::string path, int64_t layer,
                     const ExpertSlice& slice);

// Reads every unit in order, then each expert's padding, and hands them over, one unit in memory at
// a time; the file's pages do not stay in the page cache. An error of `on_unit` or `on_padding` (an
// expert's last call, also with 0 bytes) ends the walk; and the errors of opening and reading.
absl::Status ScanBank(
    const UnitLayout& layout, const BankRange& range,
    absl::FunctionRef<absl::Status(ExpertKey key, int64_t unit, std::span<const std::byte> bytes)>
        on_unit,
    absl::FunctionRef<absl::Status(ExpertKey key, std::span<const std::byte>)> on_padding);

// Header, checksum, and the digest in `leaves`, which are those of the whole bank (ReadTreeFile).
// DATA_LOSS names `path`, layer, expert and unit.
absl::Status CheckUnitDigest(const UnitLayout& layout, ExpertKey key, int64_t unit,
                             std::span<const std::byte> bytes, absl::string_view leaves,
                             const std::string& path);
// DATA_LOSS where padding is not zero.
absl::Status CheckPadding(ExpertKey key, std::span<const std::byte> padding,
                          const std::string& path);

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_BANK_SCAN_H_

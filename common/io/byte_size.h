// Sizes in bytes as people write and read them.
#ifndef SHOAL_COMMON_IO_BYTE_SIZE_H_
#define SHOAL_COMMON_IO_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// "1073741824", "512MiB", "1.5 GiB", "8GB": a number (with a fraction where there is a unit) and B,
// kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024). Fractions of a byte are
// cut off. INVALID_ARGUMENT says what to write instead: "8Gb" (bits), "8G" and "8gb" are refused,
// because a reader could mean several things by them.
absl::StatusOr<uint64_t> ParseByteSize(absl::string_view text);

// "1.50 GiB", "12.3 MiB", "512 B": three significant digits in the largest fitting unit.
std::string FormatByteSize(uint64_t bytes);

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_BYTE_SIZE_H_

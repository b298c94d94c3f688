#include "common/io/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace shoal {

uint32_t Crc32c(std::span<const std::byte> bytes) { return ExtendCrc32c(0, bytes); }

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes) {
  // ISA-L takes an int length and a non-const pointer it does not write through, and leaves the
  // final inversion to us.
  constexpr size_t kStepBytes = size_t{1} << 30;
  crc = ~crc;
  while (!bytes.empty()) {
    const auto step = bytes.first(std::min(bytes.size(), kStepBytes));
    auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(step.data()));
    crc = crc32_iscsi(data, static_cast<int>(step.size()), crc);
    bytes = bytes.subspan(step.size());
  }
  return ~crc;
}

}  // namespace shoal

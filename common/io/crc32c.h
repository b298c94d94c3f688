// CRC-32C (Castagnoli), as in iSCSI (RFC 3720): check value of "123456789" is 0xE3069283.
#ifndef SHOAL_COMMON_IO_CRC32C_H_
#define SHOAL_COMMON_IO_CRC32C_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal {

uint32_t Crc32c(std::span<const std::byte> bytes);

// The checksum of some bytes followed by `bytes`, from the checksum of the first. Crc32c({}) is
// where to start.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_CRC32C_H_

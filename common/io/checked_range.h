// Arithmetic on sizes that came from a file or a message: every step says whether it overflowed.
#ifndef SHOAL_COMMON_IO_CHECKED_RANGE_H_
#define SHOAL_COMMON_IO_CHECKED_RANGE_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace shoal {

// a * b, or nothing where it does not fit 64 bits.
inline std::optional<uint64_t> CheckedMul(uint64_t a, uint64_t b) {
  if (a != 0 && b > std::numeric_limits<uint64_t>::max() / a) {
    return std::nullopt;
  }
  return a * b;
}

// The product of all factors, or nothing where it does not fit 64 bits. An empty product is 1.
inline std::optional<uint64_t> CheckedProduct(std::span<const uint64_t> factors) {
  uint64_t product = 1;
  for (const uint64_t factor : factors) {
    const std::optional<uint64_t> next = CheckedMul(product, factor);
    if (!next) {
      return std::nullopt;
    }
    product = *next;
  }
  return product;
}

// Whether [offset, offset + length) lies inside [0, total), without ever forming offset + length.
inline bool RangeFits(uint64_t offset, uint64_t length, uint64_t total) {
  return offset <= total && length <= total - offset;
}

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_CHECKED_RANGE_H_

// SHA-256 digests (FIPS 180-4), from OpenSSL.
#ifndef SHOAL_COMMON_IO_SHA256_H_
#define SHOAL_COMMON_IO_SHA256_H_

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace shoal {

using Sha256Digest = std::array<std::byte, 32>;

// A digest that grows with what it is fed.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(absl::string_view text);
  // The digest of everything fed so far; ends this object's use.
  Sha256Digest Finish();

  static Sha256Digest Of(std::span<const std::byte> bytes);
  static Sha256Digest Of(absl::string_view text);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// 64 lower-case hexadecimal digits, and back (nothing if `hex` is anything else).
std::string ToHex(const Sha256Digest& digest);
std::optional<Sha256Digest> DigestFromHex(absl::string_view hex);

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_SHA256_H_

#include "common/io/sha256.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"

namespace shoal {

namespace {

// OpenSSL fails for want of memory, or where its configuration forbids SHA-256. A wrong digest must
// never pass for one, and no caller could go on.
void Require(bool done) {
  if (!done) {
    std::fputs("shoal: OpenSSL could not compute a SHA-256 digest\n", stderr);
    std::abort();
  }
}

}  // namespace

struct Sha256::Impl {
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context{EVP_MD_CTX_new()};
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  Require(impl_->context != nullptr &&
          EVP_DigestInit_ex(impl_->context.get(), EVP_sha256(), nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::span<const std::byte> bytes) {
  Require(EVP_DigestUpdate(impl_->context.get(), bytes.data(), bytes.size()) == 1);
}

void Sha256::Update(absl::string_view text) {
  Require(EVP_DigestUpdate(impl_->context.get(), text.data(), text.size()) == 1);
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  unsigned int size = 0;
  Require(EVP_DigestFinal_ex(impl_->context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                             &size) == 1 &&
          size == digest.size());
  return digest;
}

Sha256Digest Sha256::Of(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.Update(bytes);
  return hash.Finish();
}

Sha256Digest Sha256::Of(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.Finish();
}

std::string ToHex(const Sha256Digest& digest) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest.data()), digest.size()));
}

std::optional<Sha256Digest> DigestFromHex(absl::string_view hex) {
  Sha256Digest digest;
  if (hex.size() != 2 * digest.size() ||
      hex.find_first_not_of("0123456789abcdef") != absl::string_view::npos) {
    return std::nullopt;
  }
  const std::string raw = absl::HexStringToBytes(hex);
  std::memcpy(digest.data(), raw.data(), digest.size());
  return digest;
}

}  // namespace shoal

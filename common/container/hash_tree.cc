#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "common/io/sha256.h"

namespace shoal {
namespace {

constexpr size_t kDigestBytes = Sha256Digest().size();

Sha256Digest Subtree(absl::string_view leaves) {
  const size_t count = (leaves.size() + kDigestBytes - 1) / kDigestBytes;
  Sha256 hash;
  if (count == 1) {
    hash.Update(absl::string_view("\0", 1));
    hash.Update(leaves);
    return hash.Finish();
  }
  // The largest power of two below count.
  const size_t left = std::bit_floor(count - 1) * kDigestBytes;
  const Sha256Digest first = Subtree(leaves.substr(0, left));
  const Sha256Digest second = Subtree(leaves.substr(left));
  hash.Update(absl::string_view("\1", 1));
  hash.Update(first);
  hash.Update(second);
  return hash.Finish();
}

}  // namespace

std::string TreeRoot(absl::string_view leaves) {
  return ToHex(leaves.empty() ? Sha256::Of("") : Subtree(leaves));
}

}  // namespace shoal

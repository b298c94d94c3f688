#include "expert_node/service/terms.h"

#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/version.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

constexpr absl::string_view kArithmetic = "exact";

// What arrived may be of any length and hold any byte; it goes into a message for people.
std::string Shown(const std::string& value) {
  constexpr size_t kMostShown = 80;
  return value.empty() ? "absent"
                       : absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMostShown)), "\"");
}
std::string Shown(uint32_t value) { return value == 0 ? "absent" : absl::StrCat(value); }

// All but what is the container's.
v1::Terms TermsOfBuild() {
  v1::Terms terms;
  terms.set_protocol_version(kProtocolVersion);
  terms.mutable_container()->set_container_version(kContainerVersion);
  terms.set_arithmetic(std::string(kArithmetic));
  terms.set_kernel_revision(kKernelRevision);
  return terms;
}

template <typename T>
absl::Status CheckField(absl::string_view name, const T& ours, const T& theirs) {
  if (ours == theirs) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "terms.", name, " differs: ", Shown(ours), " here, ", Shown(theirs), " on the other side"));
}

}  // namespace

v1::Terms MakeTerms(const Manifest& manifest) {
  v1::Terms terms = TermsOfBuild();
  terms.mutable_container()->set_container_version(static_cast<uint32_t>(manifest.version));
  terms.mutable_container()->set_identity(manifest.identity);
  terms.set_codec(std::string(ExpertCodecName(manifest.settings.experts)));
  return terms;
}

absl::Status CheckTermsOfBuild(const v1::Terms& theirs) {
  v1::Terms ours = TermsOfBuild();
  ours.mutable_container()->set_identity(theirs.container().identity());
  ours.set_codec(theirs.codec());
  SHOAL_RETURN_IF_ERROR(CheckTerms(ours, theirs));
  if (!DigestFromHex(theirs.container().identity()).has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("terms.container.identity is ",
                                                      Shown(theirs.container().identity()),
                                                      "; 64 hexadecimal digits are called for"));
  }
  const absl::Status codec = ExpertCodecFromName(theirs.codec()).status();
  // On the wire UNIMPLEMENTED would say that there is no such method.
  return codec.ok() ? codec
                    : absl::FailedPreconditionError(
                          absl::StrCat("terms.codec: ", std::string(codec.message())));
}

absl::Status CheckTerms(const v1::Terms& ours, const v1::Terms& theirs) {
  SHOAL_RETURN_IF_ERROR(
      CheckField("protocol_version", ours.protocol_version(), theirs.protocol_version()));
  SHOAL_RETURN_IF_ERROR(CheckField("container.container_version",
                                   ours.container().container_version(),
                                   theirs.container().container_version()));
  SHOAL_RETURN_IF_ERROR(
      CheckField("container.identity", ours.container().identity(), theirs.container().identity()));
  SHOAL_RETURN_IF_ERROR(CheckField("codec", ours.codec(), theirs.codec()));
  SHOAL_RETURN_IF_ERROR(CheckField("arithmetic", ours.arithmetic(), theirs.arithmetic()));
  return CheckField("kernel_revision", ours.kernel_revision(), theirs.kernel_revision());
}

}  // namespace shoal

#include "expert_node/service/terms.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/version.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

constexpr absl::string_view kSameVersion = "install the same version of Shoal on both sides";

// What arrived may be of any length and hold any byte; it goes into a message for people.
std::string Shown(const std::string& value) {
  constexpr size_t kMostShown = 80;
  return value.empty() ? "none"
                       : absl::StrCat("\"", absl::CHexEscape(value.substr(0, kMostShown)), "\"");
}
std::string Shown(uint32_t value) { return value == 0 ? "none" : absl::StrCat(value); }

// All but what is the container's.
v1::Terms TermsOfBuild(ExpertArithmetic arithmetic) {
  v1::Terms terms;
  terms.set_protocol_version(kProtocolVersion);
  terms.mutable_container()->set_container_version(kContainerVersion);
  terms.set_arithmetic(std::string(ExpertArithmeticName(arithmetic)));
  terms.set_kernel_revision(kKernelRevision);
  return terms;
}

absl::Status Differs(absl::string_view field, const TermsSides& sides, absl::string_view ours,
                     absl::string_view theirs, absl::string_view fix) {
  return absl::FailedPreconditionError(absl::StrCat("terms.", field, " differs: ", sides.ours,
                                                    " has ", ours, ", ", sides.theirs, " has ",
                                                    theirs, "; ", fix));
}

// What only another version of Shoal changes. The smaller number is the older one.
absl::Status CheckRevision(absl::string_view field, const TermsSides& sides, uint32_t ours,
                           uint32_t theirs, absl::string_view fix) {
  return ours == theirs ? absl::OkStatus()
                        : Differs(field, sides, Shown(ours), Shown(theirs),
                                  absl::StrCat(fix, " on the side of ",
                                               ours < theirs ? sides.ours : sides.theirs,
                                               ", which is the older"));
}

// What belongs to the container.
absl::Status CheckContainer(absl::string_view field, const TermsSides& sides,
                            const std::string& ours, const std::string& theirs) {
  return ours == theirs
             ? absl::OkStatus()
             : Differs(field, sides, Shown(ours), Shown(theirs),
                       "they have different containers (`shoal inspect DIR` says which): "
                       "start the node on the container that its coordinator has, or on a "
                       "part of it");
}

}  // namespace

v1::Terms MakeTerms(const Manifest& manifest, ExpertArithmetic arithmetic) {
  v1::Terms terms = TermsOfBuild(arithmetic);
  terms.mutable_container()->set_container_version(static_cast<uint32_t>(manifest.version));
  terms.mutable_container()->set_identity(manifest.identity);
  terms.set_codec(std::string(ExpertCodecName(manifest.settings.experts)));
  return terms;
}

absl::Status CheckTermsOfBuild(const v1::Terms& theirs, const TermsSides& sides) {
  v1::Terms ours = TermsOfBuild(ExpertArithmetic::kExact);
  ours.mutable_container()->set_identity(theirs.container().identity());
  ours.set_codec(theirs.codec());
  SHOAL_RETURN_IF_ERROR(CheckTerms(ours, theirs, sides));
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

absl::StatusOr<ExpertArithmetic> ArithmeticOf(const v1::Terms& theirs, const TermsSides& sides) {
  const std::optional<ExpertArithmetic> arithmetic = ParseExpertArithmetic(theirs.arithmetic());
  if (!arithmetic) {
    return Differs("arithmetic", sides, "\"exact\" and \"fast\"", Shown(theirs.arithmetic()),
                   kSameVersion);
  }
  return *arithmetic;
}

absl::Status CheckTerms(const v1::Terms& ours, const v1::Terms& theirs, const TermsSides& sides) {
  constexpr absl::string_view kInstall = "install the newer Shoal";
  SHOAL_RETURN_IF_ERROR(CheckRevision("protocol_version", sides, ours.protocol_version(),
                                      theirs.protocol_version(), kInstall));
  SHOAL_RETURN_IF_ERROR(CheckRevision(
      "container.container_version", sides, ours.container().container_version(),
      theirs.container().container_version(), "convert the model again with the newer Shoal"));
  SHOAL_RETURN_IF_ERROR(CheckContainer("container.identity", sides, ours.container().identity(),
                                       theirs.container().identity()));
  SHOAL_RETURN_IF_ERROR(CheckContainer("codec", sides, ours.codec(), theirs.codec()));
  if (ours.arithmetic() != theirs.arithmetic()) {
    return Differs("arithmetic", sides, Shown(ours.arithmetic()), Shown(theirs.arithmetic()),
                   kSameVersion);
  }
  return CheckRevision("kernel_revision", sides, ours.kernel_revision(), theirs.kernel_revision(),
                       kInstall);
}

}  // namespace shoal

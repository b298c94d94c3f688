// What two sides must agree on before either trusts the other's numbers: shoal.v1.Terms.
#ifndef SHOAL_EXPERT_NODE_SERVICE_TERMS_H_
#define SHOAL_EXPERT_NODE_SERVICE_TERMS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"

namespace shoal {

namespace v1 {
class Terms;
}  // namespace v1

// The terms of this build and a container, or a part of one. Callers include shoal/v1/types.pb.h.
v1::Terms MakeTerms(const Manifest& manifest);

// By what name a message calls the two sides, since people of either may read it.
struct TermsSides {
  absl::string_view ours;
  absl::string_view theirs;
};
inline constexpr TermsSides kSeenByNode = {"this node", "the caller"};
inline constexpr TermsSides kSeenByCoordinator = {"the coordinator", "the node"};

// What a request must say to a node that has no container yet: the terms of this build, for
// whichever container. FAILED_PRECONDITION as CheckTerms, and where the identity is none or the codec
// is unknown.
absl::Status CheckTermsOfBuild(const v1::Terms& theirs, const TermsSides& sides);

// FAILED_PRECONDITION names the first field that differs, both values, and which side is to be changed;
// a field that is absent in `theirs` differs.
absl::Status CheckTerms(const v1::Terms& ours, const v1::Terms& theirs, const TermsSides& sides);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_TERMS_H_

// What two sides must agree on before either trusts the other's numbers: shoal.v1.Terms.
#ifndef SHOAL_EXPERT_NODE_SERVICE_TERMS_H_
#define SHOAL_EXPERT_NODE_SERVICE_TERMS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

namespace v1 {
class Terms;
}  // namespace v1

// The terms of this build and a container, or a part of one. Callers include shoal/v1/types.pb.h. The arithmetic is that
// of the sums that a stream asks for; where none are asked for it is exact.
v1::Terms MakeTerms(const Manifest& manifest,
                    ExpertArithmetic arithmetic = ExpertArithmetic::kExact);

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

// The arithmetic that a stream asks for.
//   FAILED_PRECONDITION  absent, or none of this build; names those of this build
absl::StatusOr<ExpertArithmetic> ArithmeticOf(const v1::Terms& theirs, const TermsSides& sides);

// FAILED_PRECONDITION names the first field that differs, both values, and which side is to be changed;
// a field that is absent in `theirs` differs.
absl::Status CheckTerms(const v1::Terms& ours, const v1::Terms& theirs, const TermsSides& sides);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_TERMS_H_

// How a machine that was invited gets its identity.
#ifndef SHOAL_EXPERT_NODE_SERVICE_JOIN_CLIENT_H_
#define SHOAL_EXPERT_NODE_SERVICE_JOIN_CLIENT_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/tls/identity.h"
#include "common/tls/invites.h"

namespace shoal {

// Makes a key, which leaves this process only in the result, and asks for a certificate of it at the
// address in the code. The other end must have a coordinator's certificate of the authority whose
// fingerprint is in the code: else nothing is sent to it.
//   UNAUTHENTICATED  the other end is not the one that invited, or the invitation is not good any
//                    more
//   UNAVAILABLE      nobody answers there
//   DATA_LOSS        what it answers is no identity of a node of that authority
absl::StatusOr<Identity> JoinPool(const InviteCode& code, absl::Time now);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_JOIN_CLIENT_H_

// Who may call what: the table of docs/security.md, in one place for every server of a pool.
#ifndef SHOAL_EXPERT_NODE_SERVICE_AUTHORIZATION_H_
#define SHOAL_EXPERT_NODE_SERVICE_AUTHORIZATION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace shoal {

// What a caller has shown. kStranger: neither a certificate nor a key.
enum class CallerKind { kCoordinator, kNode, kClient, kApiKey, kStranger };

struct Caller {
  CallerKind kind = CallerKind::kStranger;
  std::string name;    // in the certificate, or the key's
  std::string serial;  // of the certificate; empty without one
  absl::Time not_after = absl::InfiniteFuture();

  // "node attic", for messages.
  std::string Who() const;
};

// Whether such a caller may call `method` ("/shoal.v1.ExpertNode/Execute"). A method that is not in
// the table nobody may.
//   PERMISSION_DENIED  names the method and who may, for the server's log
absl::Status CheckMayCall(absl::string_view method, CallerKind caller);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_AUTHORIZATION_H_

// The listener that invited machines join through (service Join, proto/shoal/v1/membership.proto).
#ifndef SHOAL_COORDINATOR_SERVICE_JOIN_SERVER_H_
#define SHOAL_COORDINATOR_SERVICE_JOIN_SERVER_H_

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/net/address.h"
#include "common/tls/invites.h"
#include "common/tls/pool_authority.h"

namespace shoal {

class JoinServer {
 public:
  struct Options {
    NetAddress address;  // ParseListenAddress's
    absl::Duration certificate_validity = kIdentityValidity;
    // Lines for people, from any thread: who joined, and who was refused and why.
    std::function<void(absl::string_view)> log;
    std::function<absl::Time()> now = absl::Now;
    // Wrong secrets after which nobody is let in any more: somebody guesses.
    int most_wrong = 10;
    absl::Duration least_interval = absl::Milliseconds(100);  // between two tries
  };
  // Listens, with a certificate of the authority made for this. A message is at most 8 KiB. Both
  // outlive the server, which alone uses them meanwhile.
  //   CheckCanListen's errors
  static absl::StatusOr<std::unique_ptr<JoinServer>> Start(PoolAuthority& authority,
                                                           Invites& invites, Options options);
  ~JoinServer();

  const NetAddress& address() const;
  // Invites::Add, which nobody else may call meanwhile.
  absl::StatusOr<std::string> Invite(const std::string& name, absl::Time expires);
  // Returns when no invitation is open any more. CANCELLED at `stop`; RESOURCE_EXHAUSTED after too
  // many wrong secrets; DEADLINE_EXCEEDED, with their names, where machines did not join in time.
  // Invitations that are open then are closed.
  absl::Status Wait(const std::stop_token& stop);

 private:
  class Service;
  struct Impl;
  explicit JoinServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_JOIN_SERVER_H_

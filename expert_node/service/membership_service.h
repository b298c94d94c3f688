// The gRPC service Membership (proto/shoal/v1/membership.proto), and its client.
#ifndef SHOAL_EXPERT_NODE_SERVICE_MEMBERSHIP_SERVICE_H_
#define SHOAL_EXPERT_NODE_SERVICE_MEMBERSHIP_SERVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "expert_node/service/transport_security.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shoal {

// Keeps the lists that coordinators bring in `own`, which is not null. Thread-safe; outlives the
// server that it is registered with.
class MembershipService {
 public:
  explicit MembershipService(SecurityPtr own);
  ~MembershipService();
  grpc::Service& grpc_service();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Brings a list (PEM) to the server at `address` (host:port). UNAVAILABLE where there is no answer
// within seconds.
absl::Status BringRevoked(const std::string& address, const ChannelSecurity& security,
                          const std::string& pem);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_MEMBERSHIP_SERVICE_H_

// A call of a gRPC service that is refused before it begins.
#ifndef SHOAL_EXPERT_NODE_SERVICE_REFUSAL_H_
#define SHOAL_EXPERT_NODE_SERVICE_REFUSAL_H_

#include <grpcpp/support/server_callback.h>

#include "absl/status/status.h"
#include "expert_node/service/grpc_status.h"

namespace shoal {

// Deletes itself when gRPC is done with it.
template <typename Reactor>
class Refusal final : public Reactor {
 public:
  explicit Refusal(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override {
    delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
  }
};

// For a handler to return: ends the call with `status`, which is an error.
template <typename Reactor>
Reactor* Refuse(const grpc::Status& status) {
  return new Refusal<Reactor>(status);  // NOLINT(cppcoreguidelines-owning-memory)
}
template <typename Reactor>
Reactor* Refuse(const absl::Status& status) {
  return Refuse<Reactor>(ToGrpcStatus(status));
}

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_REFUSAL_H_

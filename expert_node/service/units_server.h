// A container lent to nodes that fill themselves: the part of ExpertNode that copies, without the
// part that computes. For a coordinator, or any program that has the container.
#ifndef SHOAL_EXPERT_NODE_SERVICE_UNITS_SERVER_H_
#define SHOAL_EXPERT_NODE_SERVICE_UNITS_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/container/container.h"
#include "common/net/address.h"
#include "expert_node/service/server_security.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace shoal {

// The gRPC service, for a server that has others too. Describe says what the container is and that
// everything is held; FetchUnits and FetchModel copy; Execute and Fill are refused with
// FAILED_PRECONDITION. Thread-safe.
class UnitsService {
 public:
  struct Options {
    std::string name = "coordinator";  // as CheckNodeName wants it
    int max_copies = 8;                // at a time; each takes one expert's record of memory
    SecurityPtr own = {};              // of the server; null: without TLS
  };
  // `container` is read only here; the service keeps what it needs and opens the banks.
  //   FAILED_PRECONDITION  the model has no experts
  //   and HeldUnits::Open's errors
  static absl::StatusOr<std::unique_ptr<UnitsService>> Create(const Container& container,
                                                              const Options& options);
  ~UnitsService();

  // For ServerBuilder::RegisterService; the service's, which outlives the server.
  grpc::Service& grpc_service();
  // What its messages take at most.
  uint64_t MessageBytes() const;
  // From now on new copies are refused with UNAVAILABLE.
  void Drain();

 private:
  class Impl;
  explicit UnitsService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The same with a server of its own.
class UnitsServer {
 public:
  // Listens; as GrpcServer::Start.
  static absl::StatusOr<std::unique_ptr<UnitsServer>> Start(const Container& container,
                                                            const UnitsService::Options& options,
                                                            const NetAddress& address,
                                                            const ServerSecurity& security);
  // Cuts the copies that are under way.
  ~UnitsServer();

  // With the port that the system chose where 0 was asked for.
  const NetAddress& address() const;

 private:
  struct Impl;
  explicit UnitsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a client sends to a service that computes nothing is smaller.
inline constexpr int kMaxCopyRequestBytes = 64 << 10;

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_UNITS_SERVER_H_

// FetchUnits and FetchModel for whoever holds units: a node, or a coordinator with its container.
#ifndef SHOAL_EXPERT_NODE_SERVICE_COPY_SERVICE_H_
#define SHOAL_EXPERT_NODE_SERVICE_COPY_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/expert_slice.h"
#include "common/sync/mutex.h"
#include "expert_node/expert_model.h"
#include "expert_node/io_threads.h"
#include "expert_node/service/held_units.h"
#include "expert_node/service/model_stream.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/transport_security.h"

namespace shoal {

namespace v1 {
class FetchModelReply;
class FetchModelRequest;
class FetchUnitsReply;
class FetchUnitsRequest;
class Terms;
}  // namespace v1

// Thread-safe. Its handlers return the reactor of a call, or of its refusal; reads have a thread of
// their own.
class CopyService {
 public:
  using UnitsReactor = grpc::ServerWriteReactor<v1::FetchUnitsReply>;
  using ModelReactor = grpc::ServerWriteReactor<v1::FetchModelReply>;

  struct Options {
    std::string directory;  // of the container or partition that the units are in
    int max_copies = 0;     // at a time
    SecurityPtr own = {};   // null: without TLS every caller may have every slice
  };
  // All references outlive the object, and it outlives the server.
  CopyService(const ExpertSizes& sizes, const v1::Terms& terms, HeldUnits& units, Options options);

  UnitsReactor* FetchUnits(grpc::CallbackServerContext& context,
                           const v1::FetchUnitsRequest& request);
  ModelReactor* FetchModel(const v1::FetchModelRequest& request);
  // From now on new calls are refused with UNAVAILABLE.
  void Drain();

 private:
  absl::StatusOr<ExpertSlice> CheckUnits(const grpc::CallbackServerContext& context,
                                         const v1::FetchUnitsRequest& request) const;
  // The file of the directory that a request means.
  absl::StatusOr<std::string> NameOf(const v1::FetchModelRequest& request) const;
  absl::StatusOr<ModelFileContent> OpenFile(const v1::FetchModelRequest& request) const;
  // Counts one more call, where there may be one; the function given back is to be called at its
  // end.
  absl::StatusOr<std::function<void()>> Begin();

  const ExpertSizes& sizes_;
  const v1::Terms& terms_;
  HeldUnits& units_;
  const Options options_;
  const RequestRules rules_;
  IoThreads reader_;

  Mutex mutex_;
  int copies_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_COPY_SERVICE_H_

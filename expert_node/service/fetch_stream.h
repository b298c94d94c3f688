// One FetchUnits call of a node.
#ifndef SHOAL_EXPERT_NODE_SERVICE_FETCH_STREAM_H_
#define SHOAL_EXPERT_NODE_SERVICE_FETCH_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "common/container/expert_slice.h"
#include "expert_node/io_threads.h"
#include "expert_node/service/held_units.h"

namespace shoal {

namespace v1 {
class FetchUnitsReply;
}  // namespace v1

// Reads and sends one expert after the other, the next when gRPC has taken the last: one message is
// in memory. Deletes itself when gRPC is done with it.
class FetchStream final : public grpc::ServerWriteReactor<v1::FetchUnitsReply> {
 public:
  // `slice` is held by `units`. `units` and `reader`, which reads, outlive the stream; `on_done` is
  // called last.
  FetchStream(HeldUnits& units, IoThreads& reader, int64_t layer, const ExpertSlice& slice,
              std::function<void()> on_done);
  ~FetchStream() override;

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void SubmitRead();
  void Read();

  HeldUnits& units_;
  IoThreads& reader_;
  const int64_t layer_;
  const ExpertSlice slice_;
  const std::function<void()> on_done_;
  int64_t expert_;  // sent next
  std::unique_ptr<v1::FetchUnitsReply> reply_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_FETCH_STREAM_H_

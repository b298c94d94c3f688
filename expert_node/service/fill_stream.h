// One Fill call of an empty node.
#ifndef SHOAL_EXPERT_NODE_SERVICE_FILL_STREAM_H_
#define SHOAL_EXPERT_NODE_SERVICE_FILL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "common/container/partition_writer.h"
#include "common/sync/mutex.h"
#include "expert_node/io_threads.h"

namespace shoal {

namespace v1 {
class FillProgress;
}  // namespace v1

// Runs the work on a thread of its own, sends the newest progress whenever gRPC has taken the last,
// and ends with the work's status. A call that is cancelled or breaks off stops the work. Deletes
// itself when gRPC is done with it and the work has ended.
class FillStream final : public grpc::ServerWriteReactor<v1::FillProgress> {
 public:
  using Work = std::function<absl::Status(const OnPartitionProgress& on_progress, std::stop_token)>;

  // `worker` outlives the stream; `on_done` is called last, with the work's status.
  FillStream(Work work, IoThreads& worker, std::function<void(const absl::Status&)> on_done);
  ~FillStream() override;

  // Stops the work: the node ends.
  void Drain();

  void OnWriteDone(bool ok) override;
  void OnCancel() override { stop_.request_stop(); }
  void OnDone() override;

 private:
  void Report(const PartitionProgress& progress);
  void End(absl::Status status);
  // Writes what waits. True where the caller must call Finish, without the mutex and as the last
  // thing it does.
  bool Step() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void(const absl::Status&)> on_done_;
  std::stop_source stop_;

  Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<v1::FillProgress> written_ ABSL_GUARDED_BY(mutex_);
  std::optional<PartitionProgress> next_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_FILL_STREAM_H_

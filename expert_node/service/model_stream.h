// One FetchModel call: a small file of the model, sent in pieces.
#ifndef SHOAL_EXPERT_NODE_SERVICE_MODEL_STREAM_H_
#define SHOAL_EXPERT_NODE_SERVICE_MODEL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/io/unique_fd.h"
#include "expert_node/io_threads.h"

namespace shoal {

namespace v1 {
class FetchModelReply;
}  // namespace v1

// Bytes of a file in one message.
inline constexpr uint64_t kModelPieceBytes = uint64_t{64} << 10;

// A file that is open, for ModelStream.
struct ModelFileContent {
  UniqueFd fd;
  std::string path;
  uint64_t size_bytes = 0;  // at least 1
};

// Reads and sends one piece after the other. Deletes itself when gRPC is done with it.
class ModelStream final : public grpc::ServerWriteReactor<v1::FetchModelReply> {
 public:
  // `reader`, which reads, outlives the stream; `on_done` is called last.
  ModelStream(ModelFileContent file, IoThreads& reader, std::function<void()> on_done);
  ~ModelStream() override;

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void SubmitRead();
  absl::Status Read();

  const ModelFileContent file_;
  IoThreads& reader_;
  const std::function<void()> on_done_;
  uint64_t sent_bytes_ = 0;
  std::unique_ptr<v1::FetchModelReply> reply_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_MODEL_STREAM_H_

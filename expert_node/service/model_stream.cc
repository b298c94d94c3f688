#include "expert_node/service/model_stream.h"

#include <algorithm>
#include <span>
#include <utility>

#include "common/io/file.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {

ModelStream::ModelStream(ModelFileContent file, IoThreads& reader, std::function<void()> on_done)
    : file_(std::move(file)),
      reader_(reader),
      on_done_(std::move(on_done)),
      reply_(std::make_unique<v1::FetchModelReply>()) {
  SubmitRead();
}

ModelStream::~ModelStream() = default;

void ModelStream::SubmitRead() {
  reader_.Submit(this, [this] {
    if (const absl::Status status = Read(); !status.ok()) {
      Finish(ToGrpcStatus(status));
    } else {
      StartWrite(reply_.get());
    }
  });
}

absl::Status ModelStream::Read() {
  std::string& content = *reply_->mutable_content();
  content.resize(std::min(kModelPieceBytes, file_.size_bytes - sent_bytes_));
  return ReadExactAt(file_.fd, file_.path, sent_bytes_,
                     std::as_writable_bytes(std::span(content.data(), content.size())));
}

void ModelStream::OnWriteDone(bool ok) {
  if (!ok) {
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the stream was cancelled"));
    return;
  }
  sent_bytes_ += reply_->content().size();
  if (sent_bytes_ == file_.size_bytes) {
    Finish(grpc::Status::OK);
    return;
  }
  SubmitRead();
}

void ModelStream::OnDone() {
  on_done_();
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
}

}  // namespace shoal

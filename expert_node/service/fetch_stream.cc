#include "expert_node/service/fetch_stream.h"

#include <utility>

#include "expert_node/service/grpc_status.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {

FetchStream::FetchStream(HeldUnits& units, IoThreads& reader, int64_t layer,
                         const ExpertSlice& slice, std::function<void()> on_done)
    : units_(units),
      reader_(reader),
      layer_(layer),
      slice_(slice),
      on_done_(std::move(on_done)),
      expert_(slice.experts.begin),
      reply_(std::make_unique<v1::FetchUnitsReply>()) {
  SubmitRead();
}

FetchStream::~FetchStream() = default;

void FetchStream::SubmitRead() {
  reader_.Submit(this, [this] { Read(); });
}

void FetchStream::Read() {
  const absl::Status status = units_.Read({layer_, expert_}, slice_.units, reply_->mutable_units());
  if (!status.ok()) {
    Finish(ToGrpcStatus(status));
    return;
  }
  reply_->set_expert(static_cast<uint32_t>(expert_));
  StartWrite(reply_.get());
}

void FetchStream::OnWriteDone(bool ok) {
  if (!ok) {
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the stream was cancelled"));
    return;
  }
  ++expert_;
  if (expert_ == slice_.experts.end) {
    Finish(grpc::Status::OK);
    return;
  }
  SubmitRead();
}

void FetchStream::OnDone() {
  on_done_();
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
}

}  // namespace shoal

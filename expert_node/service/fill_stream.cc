#include "expert_node/service/fill_stream.h"

#include <utility>

#include "expert_node/service/grpc_status.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {

FillStream::FillStream(Work work, IoThreads& worker,
                       std::function<void(const absl::Status&)> on_done)
    : on_done_(std::move(on_done)), written_(std::make_unique<v1::FillProgress>()) {
  worker.Submit(this, [this, work = std::move(work)] {
    End(work([this](const PartitionProgress& progress) { Report(progress); }, stop_.get_token()));
  });
}

FillStream::~FillStream() = default;

void FillStream::Drain() {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  stop_.request_stop();
}

void FillStream::Report(const PartitionProgress& progress) {
  MutexLock lock(&mutex_);
  next_ = progress;
  Step();  // not the end: the work has not ended
}

void FillStream::End(absl::Status status) {
  bool finish = false;
  {
    MutexLock lock(&mutex_);
    if (draining_ && absl::IsCancelled(status)) {
      status = absl::UnavailableError("the node ends; what is finished is kept");
    }
    end_ = status;
    finish = Step();
  }
  if (finish) {
    Finish(ToGrpcStatus(status));
  }
}

void FillStream::OnWriteDone(bool ok) {
  // Another thread may end the stream as soon as the mutex is free.
  std::stop_source stop = stop_;
  bool finish = false;
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) {
      next_.reset();
    }
    finish = Step();
    status = end_.value_or(absl::OkStatus());
  }
  if (finish) {
    Finish(ToGrpcStatus(status));
  }
  if (!ok) {
    stop.request_stop();
  }
}

bool FillStream::Step() {
  if (writing_) {
    return false;
  }
  if (!next_.has_value()) {
    return end_.has_value();
  }
  written_->set_bytes_done(next_->bytes_done);
  written_->set_bytes_total(next_->bytes_total);
  written_->set_bytes_kept(next_->bytes_kept);
  written_->set_step(next_->step);
  next_.reset();
  writing_ = true;
  StartWrite(written_.get());
  return false;
}

void FillStream::OnDone() {
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    status = *end_;
  }
  on_done_(status);
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
}

}  // namespace shoal

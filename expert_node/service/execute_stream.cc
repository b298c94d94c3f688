#include "expert_node/service/execute_stream.h"

#include <grpcpp/server_context.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// Slots for what is not a layer: a client that asks and never reads answers is read no further.
constexpr int kControlSlots = 4;

// What a layer has cost so far, over all calls.
ExpertLayerStats StatsOf(const ExpertBackend& backend, int64_t layer) {
  for (const ExpertLayerStats& stats : backend.Stats()) {
    if (stats.layer == layer) {
      return stats;
    }
  }
  return {};
}

void FillCost(const ExpertLayerStats& before, const ExpertLayerStats& after, v1::LayerCost* cost) {
  cost->set_wait_ns(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(after.wait_time - before.wait_time)));
  cost->set_expert_hits(static_cast<uint32_t>(after.expert_hits - before.expert_hits));
  cost->set_expert_misses(static_cast<uint32_t>(after.expert_misses - before.expert_misses));
  cost->set_expert_reads(static_cast<uint32_t>(after.expert_reads - before.expert_reads));
  cost->set_expert_bytes(after.expert_bytes - before.expert_bytes);
}

// The ids were checked to be below the number of experts, so that their sign does not matter.
std::span<const int32_t> Signed(const google::protobuf::RepeatedField<uint32_t>& ids) {
  return {reinterpret_cast<const int32_t*>(ids.data()), static_cast<size_t>(ids.size())};
}

std::span<const float> View(const google::protobuf::RepeatedField<float>& values) {
  return {values.data(), static_cast<size_t>(values.size())};
}

}  // namespace

// A message from its arrival until its answer is sent.
struct ExecuteStream::Slot {
  v1::ExecuteRequest request;
  std::vector<ExpertSlice> slices;
  absl::Time arrived;
  bool is_layer = false;
  // Kept apart, so that a pong does not cost a layer's sums their memory.
  v1::ExecuteReply layer_reply;
  v1::ExecuteReply control_reply;
};

ExecuteStream::ExecuteStream(const ExecuteContext& context, ServerGuard* guard,
                             grpc::CallbackServerContext& call)
    : context_(context), watch_(guard, call, CallKind::kExecute) {
  MutexLock lock(&mutex_);
  Step();
}

ExecuteStream::~ExecuteStream() = default;

void ExecuteStream::Drain() {
  End(absl::UnavailableError("the node is draining: it takes no further work"), Pending::kAnswer);
}

void ExecuteStream::OnReadDone(bool ok) {
  watch_.EndRead();
  Slot* slot = nullptr;
  {
    MutexLock lock(&mutex_);
    slot = std::exchange(reading_, nullptr);
  }
  if (!ok) {
    // The client has said all it wanted, or is gone, which OnCancel hears of.
    End(absl::OkStatus(), Pending::kAnswer);
    return;
  }
  if (const absl::Status status = Accept(slot); !status.ok()) {
    End(status, Pending::kDrop);
  }
}

absl::Status ExecuteStream::Accept(Slot* slot) {
  slot->arrived = context_.clock.Now();
  slot->is_layer = slot->request.has_layer();
  if (slot->request.has_hello()) {
    return AcceptHello(slot);
  }
  if (!greeted_) {
    return absl::InvalidArgumentError("hello is absent: the first message of a stream must be it");
  }
  if (slot->is_layer) {
    return AcceptLayer(slot);
  }
  if (slot->request.has_ping()) {
    slot->control_reply.mutable_pong()->set_id(slot->request.ping().id());
    AnswerFirst(slot);
    return absl::OkStatus();
  }
  if (!slot->request.has_prefetch()) {
    return absl::InvalidArgumentError("kind is absent, or one that this node does not know");
  }
  SHOAL_RETURN_IF_ERROR(context_.rules.CheckPrefetch(slot->request.prefetch()));
  MutexLock lock(&mutex_);
  idle_.push_back(slot);
  if (!ending_) {
    Step();
  }
  return absl::OkStatus();
}

absl::Status ExecuteStream::AcceptHello(Slot* slot) {
  if (greeted_) {
    return absl::InvalidArgumentError("hello was sent before; a stream begins once");
  }
  SHOAL_ASSIGN_OR_RETURN(arithmetic_,
                         context_.rules.CheckHello(slot->request.hello(), context_.terms));
  greeted_ = true;
  context_.describe(slot->control_reply.mutable_welcome()->mutable_node());
  AnswerFirst(slot);
  return absl::OkStatus();
}

absl::Status ExecuteStream::AcceptLayer(Slot* slot) {
  const v1::LayerRequest& layer = slot->request.layer();
  SHOAL_ASSIGN_OR_RETURN(slot->slices, context_.rules.CheckLayer(layer));
  bool here = false;
  {
    MutexLock lock(&mutex_);
    if (std::find(ids_.begin(), ids_.end(), layer.id()) != ids_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer.id ", layer.id(), " is that of a request in flight"));
    }
    if (ending_) {
      return absl::OkStatus();  // read too late; the caller asks elsewhere
    }
    ids_.push_back(layer.id());
    ++layers_;
    ++running_;
    here =
        running_ == 1 &&
        layer.expert_ids_size() <= context_.max_rows_on_reader * context_.rules.experts_per_row() &&
        context_.work.TryBeginHere();
    if (!here) {
      context_.work.Submit(this, [this, slot] {
        Compute(slot);
        Answer(slot);
      });
    }
    Step();  // another thread reads on meanwhile
  }
  if (here) {
    Compute(slot);
    context_.work.EndHere();
    Answer(slot);
  }
  return absl::OkStatus();
}

void ExecuteStream::AnswerFirst(Slot* slot) {
  MutexLock lock(&mutex_);
  if (!ending_) {
    outgoing_.push_front(slot);
    Step();
  }
}

void ExecuteStream::Answer(Slot* slot) {
  {
    MutexLock lock(&mutex_);
    --running_;
    if (!dropping_) {
      outgoing_.push_back(slot);
    }
    if (!Step()) {
      return;
    }
  }
  Finish(ToGrpcStatus(end_));
}

void ExecuteStream::Compute(Slot* slot) {
  const v1::LayerRequest& request = slot->request.layer();
  v1::LayerReply& reply = *slot->layer_reply.mutable_layer();
  reply.set_id(request.id());
  reply.clear_error();
  google::protobuf::RepeatedField<int64_t>& sums = *reply.mutable_sums();
  sums.Clear();
  sums.Resize(request.rows_size(), 0);
  ExpertBackend::Batch batch;
  batch.layer = request.layer();
  batch.call = request.call();
  batch.arithmetic = arithmetic_;
  batch.num_rows = request.expert_ids_size() / context_.rules.experts_per_row();
  batch.rows = View(request.rows());
  batch.expert_ids = Signed(request.expert_ids());
  batch.expert_weights = View(request.expert_weights());
  const ExpertLayerStats before = StatsOf(context_.backend, batch.layer);
  const absl::Time start = context_.clock.Now();
  const absl::Status status =
      context_.backend.Execute(batch, slot->slices, stop_.get_token(),
                               {sums.mutable_data(), static_cast<size_t>(sums.size())});
  const absl::Time end = context_.clock.Now();
  FillCost(before, StatsOf(context_.backend, batch.layer), reply.mutable_cost());
  context_.counters.AddLayer(static_cast<uint64_t>(batch.num_rows), start - slot->arrived,
                             end - start, status.ok());
  reply.mutable_cost()->set_execute_ns(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(end - start)));
  reply.mutable_cost()->set_queue_ns(
      static_cast<uint64_t>(absl::ToInt64Nanoseconds(start - slot->arrived)));
  if (!status.ok()) {
    sums.Clear();
    reply.mutable_error()->set_code(static_cast<int32_t>(status.code()));
    reply.mutable_error()->set_message(
        absl::StrCat("epoch ", request.epoch(), ": ", status.message()));
    LogFailure(request, status);
  }
}

void ExecuteStream::LogFailure(const v1::LayerRequest& request, const absl::Status& status) const {
  if (absl::IsCancelled(status)) {
    return;
  }
  const std::string message =
      absl::StrCat("layer ", request.layer(), ": ", std::string(status.message()));
  context_.log.Add({.message = message, .call = request.call(), .code = status.code()});
}

void ExecuteStream::OnWriteDone(bool ok) {
  watch_.EndWrite();
  if (!ok) {
    End(absl::CancelledError("a reply could not be sent"), Pending::kDrop);
  }
  {
    MutexLock lock(&mutex_);
    Slot* slot = std::exchange(writing_, nullptr);
    layers_ -= slot->is_layer ? 1 : 0;
    idle_.push_back(slot);
    if (!Step()) {
      return;
    }
  }
  Finish(ToGrpcStatus(end_));
}

void ExecuteStream::OnCancel() {
  End(absl::CancelledError("the stream was cancelled"), Pending::kDrop);
}

void ExecuteStream::OnDone() {
  {
    // Whoever started the last operation may still hold it.
    MutexLock lock(&mutex_);
  }
  context_.on_done(this);
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
}

void ExecuteStream::End(const absl::Status& status, Pending pending) {
  bool finish = false;
  {
    MutexLock lock(&mutex_);
    if (!finished_ && (!ending_ || (pending == Pending::kDrop && !dropping_))) {
      end_ = status;
    }
    ending_ = true;
    if (pending == Pending::kDrop) {
      dropping_ = true;
      running_ -= context_.work.Withdraw(this);
      outgoing_.clear();
    }
    finish = Step();
  }
  if (pending == Pending::kDrop) {
    stop_.request_stop();  // what could not be withdrawn
  }
  if (finish) {
    Finish(ToGrpcStatus(end_));
  }
}

bool ExecuteStream::Step() {
  if (finished_) {
    return false;
  }
  if (writing_ == nullptr && !outgoing_.empty()) {
    writing_ = outgoing_.front();
    outgoing_.pop_front();
    if (writing_->is_layer) {
      // The client may use the id again as soon as it sees the reply.
      ids_.erase(std::find(ids_.begin(), ids_.end(), writing_->request.layer().id()));
    }
    const auto sums = static_cast<size_t>(writing_->layer_reply.layer().sums_size());
    watch_.BeginWrite(writing_->is_layer ? sums * sizeof(int64_t) : 0);
    StartWrite(writing_->is_layer ? &writing_->layer_reply : &writing_->control_reply);
  }
  if (ending_) {
    finished_ = running_ == 0 && writing_ == nullptr && outgoing_.empty();
    return finished_;
  }
  if (reading_ == nullptr) {
    reading_ = TakeSlot();
    if (reading_ != nullptr) {
      watch_.BeginRead();
      StartRead(&reading_->request);
    }
  }
  return false;
}

ExecuteStream::Slot* ExecuteStream::TakeSlot() {
  if (layers_ >= context_.max_queued_layers) {
    return nullptr;
  }
  if (!idle_.empty()) {
    Slot* slot = idle_.back();
    idle_.pop_back();
    return slot;
  }
  if (slots_.size() >= static_cast<size_t>(context_.max_queued_layers + kControlSlots)) {
    return nullptr;
  }
  return slots_.emplace_back(std::make_unique<Slot>()).get();
}

}  // namespace shoal

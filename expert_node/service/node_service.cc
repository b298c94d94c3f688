#include "expert_node/service/node_service.h"

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/io/file.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "expert_node/service/copy_service.h"
#include "expert_node/service/execute_stream.h"
#include "expert_node/service/node_counters.h"
#include "expert_node/service/refusal.h"
#include "expert_node/service/request_rules.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {
namespace {

constexpr int64_t kMostRows = 65536;
constexpr int kRefused = 64;
constexpr int kLinesAMinute = 60;

absl::Status CheckOptions(const NodeService::Options& options) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(options.name, "name"));
  const std::pair<absl::string_view, int64_t> counts[] = {
      {"max_rows", options.max_rows},       {"max_queued_layers", options.max_queued_layers},
      {"max_streams", options.max_streams}, {"max_fetches", options.max_fetches},
      {"num_workers", options.num_workers},
  };
  for (const auto& [name, value] : counts) {
    if (value < 1) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is ", value, "; at least 1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

class NodeService::Impl final : public v1::ExpertNode::CallbackService {
 public:
  using ExecuteReactor = grpc::ServerBidiReactor<v1::ExecuteRequest, v1::ExecuteReply>;
  using FillReactor = grpc::ServerWriteReactor<v1::FillProgress>;

  Impl(ExpertBackend& backend, const ExpertModel& model, const v1::Terms& terms, HeldUnits& units,
       Options options, const Clock& clock)
      : model_(model),
        terms_(terms),
        units_(units),
        options_(std::move(options)),
        rules_(model, options_.max_rows),
        copies_(model, terms_, units, {options_.directory, options_.max_fetches, options_.own}),
        work_(options_.num_workers),
        log_(options_.log, kLinesAMinute, clock),
        context_{backend,
                 rules_,
                 terms_,
                 clock,
                 work_,
                 counters_,
                 log_,
                 options_.max_queued_layers,
                 options_.max_rows_on_reader,
                 [this](v1::DescribeReply* reply) { FillDescription(reply); },
                 [this](ExecuteStream* stream) { Remove(stream); }} {}

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* context,
                                     const v1::DescribeRequest* request,
                                     v1::DescribeReply* reply) override;
  ExecuteReactor* Execute(grpc::CallbackServerContext* context) override;
  CopyService::UnitsReactor* FetchUnits(grpc::CallbackServerContext* context,
                                        const v1::FetchUnitsRequest* request) override {
    return copies_.FetchUnits(*context, *request);
  }
  CopyService::ModelReactor* FetchModel(grpc::CallbackServerContext* /*context*/,
                                        const v1::FetchModelRequest* request) override {
    return copies_.FetchModel(*request);
  }
  FillReactor* Fill(grpc::CallbackServerContext* /*context*/,
                    const v1::FillRequest* /*request*/) override {
    return Refuse<FillReactor>(absl::FailedPreconditionError(
        absl::StrCat("the node ", options_.name,
                     " is not empty: it serves what it holds; to fill "
                     "it, start it on a directory that does not exist")));
  }

  const v1::Terms& terms() const { return terms_; }
  const RequestRules& rules() const { return rules_; }
  const Options& options() const { return options_; }
  void SetGuard(ServerGuard& guard) { guard_ = &guard; }
  uint64_t MessageBytes() const { return NodeMessageBytes(model_, options_); }
  void Drain();
  bool WaitUntilDrained(absl::Duration timeout);
  State state() const;

 private:
  void FillDescription(v1::DescribeReply* reply);
  void Remove(ExecuteStream* stream);

  const ExpertModel& model_;
  const v1::Terms terms_;
  HeldUnits& units_;
  const Options options_;
  const RequestRules rules_;
  CopyService copies_;
  WorkQueue work_;
  NodeCounters counters_;
  LogLimit log_;
  const ExecuteContext context_;
  std::atomic<ServerGuard*> guard_{nullptr};

  mutable Mutex mutex_;
  CondVar changed_;
  std::set<ExecuteStream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

grpc::ServerUnaryReactor* NodeService::Impl::Describe(grpc::CallbackServerContext* context,
                                                      const v1::DescribeRequest* /*request*/,
                                                      v1::DescribeReply* reply) {
  FillDescription(reply);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void NodeService::Impl::FillDescription(v1::DescribeReply* reply) {
  reply->set_name(options_.name);
  *reply->mutable_terms() = terms_;
  for (const ExpertSlice& slice : units_.slices()) {
    ToMessage(slice, reply->add_slices());
  }
  reply->set_num_layers(static_cast<uint32_t>(model_.layers.size()));
  reply->set_max_rows(static_cast<uint32_t>(options_.max_rows));
  reply->set_max_queued_layers(static_cast<uint32_t>(options_.max_queued_layers));
  reply->set_read_bytes_per_second(options_.read_bytes_per_second);
  reply->set_compute_bytes_per_second(options_.compute_bytes_per_second);
  reply->set_free_disk_bytes(FreeDiskBytes(options_.directory).value_or(0));
  MutexLock lock(&mutex_);
  reply->set_draining(draining_);
}

NodeService::Impl::ExecuteReactor* NodeService::Impl::Execute(
    grpc::CallbackServerContext* context) {
  MutexLock lock(&mutex_);
  if (draining_) {
    return Refuse<ExecuteReactor>(
        absl::UnavailableError("the node is draining: it takes no new stream"));
  }
  if (std::ssize(streams_) >= options_.max_streams) {
    return Refuse<ExecuteReactor>(absl::ResourceExhaustedError(
        absl::StrCat("the node has ", options_.max_streams, " streams open, its most")));
  }
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): deletes itself in OnDone
  auto* stream = new ExecuteStream(context_, guard_, *context);
  streams_.insert(stream);
  return stream;
}

void NodeService::Impl::Remove(ExecuteStream* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
  changed_.NotifyAll();
}

void NodeService::Impl::Drain() {
  copies_.Drain();
  MutexLock lock(&mutex_);
  draining_ = true;
  // They leave the set in OnDone, which waits for the mutex.
  for (ExecuteStream* stream : streams_) {
    stream->Drain();
  }
}

bool NodeService::Impl::WaitUntilDrained(absl::Duration timeout) {
  const absl::Time deadline = Clock::Real().Now() + timeout;
  MutexLock lock(&mutex_);
  while (!streams_.empty()) {
    const absl::Duration left = deadline - Clock::Real().Now();
    if (left <= absl::ZeroDuration()) {
      return false;
    }
    changed_.WaitWithTimeout(&mutex_, left);
  }
  return true;
}

NodeService::State NodeService::Impl::state() const {
  const NodeCounts counts = counters_.Counts();
  MutexLock lock(&mutex_);
  return {static_cast<int>(streams_.size()), draining_, counts};
}

absl::StatusOr<std::unique_ptr<NodeService>> NodeService::Create(
    ExpertBackend& backend, const ExpertModel& model, const v1::Terms& terms, HeldUnits& units,
    const Options& options, const Clock& clock) {
  SHOAL_RETURN_IF_ERROR(CheckOptions(options));
  const RequestRules rules(model, options.max_rows);
  if (options.max_rows > kMostRows ||
      std::max(rules.MaxRequestBytes(), rules.MaxReplyBytes()) > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("max_rows is ", options.max_rows, "; at most ",
                                                   kMostRows,
                                                   ", and no more than 2 GiB a message"));
  }
  return std::unique_ptr<NodeService>(
      new NodeService(std::make_unique<Impl>(backend, model, terms, units, options, clock)));
}

NodeService::NodeService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
NodeService::~NodeService() = default;

grpc::Service& NodeService::grpc_service() { return *impl_; }
int64_t NodeService::MaxRequestBytes() const { return impl_->rules().MaxRequestBytes(); }
uint64_t NodeService::MessageBytes() const { return impl_->MessageBytes(); }
std::vector<std::string> NodeService::HealthNames() const {
  const std::string service = v1::ExpertNode::service_full_name();
  return {service, absl::StrCat(service, "/", impl_->terms().container().identity())};
}
void NodeService::SetGuard(ServerGuard& guard) { impl_->SetGuard(guard); }
CallLimits::Changes NodeService::Limits() const {
  const Options& options = impl_->options();
  // More than the service takes get this far: its own refusal says more.
  return {
      {CallKind::kExecute, {options.max_streams + kRefused, std::max(1, options.max_streams - 1)}},
      {CallKind::kCopy, {options.max_fetches + kRefused, std::max(1, options.max_fetches / 2)}}};
}
void NodeService::Drain() { impl_->Drain(); }
NodeService::State NodeService::state() const { return impl_->state(); }
bool NodeService::WaitUntilDrained(absl::Duration timeout) {
  return impl_->WaitUntilDrained(timeout);
}

uint64_t NodeMessageBytes(const ExpertModel& model, const NodeService::Options& options) {
  // As it arrives or leaves, and as a message.
  constexpr uint64_t kCopies = 2;
  const RequestRules rules(model, options.max_rows);
  const auto a_layer = static_cast<uint64_t>(rules.MaxRequestBytes() + rules.MaxReplyBytes());
  // One more than may be queued is read while the last is computed.
  const auto layers = static_cast<uint64_t>(options.max_streams) *
                      (static_cast<uint64_t>(options.max_queued_layers) + 1);
  const uint64_t fetches =
      static_cast<uint64_t>(options.max_fetches) * kCopies + 1;  // and the buffer of the reads
  return layers * a_layer * kCopies +
         fetches * std::max(model.layout.record_bytes, kModelPieceBytes);
}

}  // namespace shoal

#include "coordinator/service/cluster_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "coordinator/service/plan_message.h"
#include "expert_node/service/channel.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/slice_message.h"
#include "shoal/v1/cluster.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kAnswerWithin(10);

absl::Duration FromNs(uint64_t nanoseconds) { return absl::Nanoseconds(nanoseconds); }

NodeState StateOf(const std::string& name) {
  for (const NodeState state : kNodeStates) {
    if (NodeStateName(state) == name) {
      return state;
    }
  }
  return NodeState::kLost;
}

absl::StatusOr<std::vector<ExpertSlice>> Slices(
    const google::protobuf::RepeatedPtrField<v1::ExpertSlice>& messages) {
  std::vector<ExpertSlice> slices;
  slices.reserve(static_cast<size_t>(messages.size()));
  for (const v1::ExpertSlice& message : messages) {
    SHOAL_ASSIGN_OR_RETURN(slices.emplace_back(), FromMessage(message, "slice"));
  }
  return slices;
}

absl::StatusOr<PoolNodeStatus> FromMessage(const v1::NodeStatus& message) {
  PoolNodeStatus node;
  node.name = message.name();
  node.address = message.address();
  node.state = StateOf(message.state());
  node.last_error = message.last_error();
  SHOAL_ASSIGN_OR_RETURN(node.computes, Slices(message.computes()));
  SHOAL_ASSIGN_OR_RETURN(node.slices, Slices(message.stored()));
  node.read_bytes_per_second = message.read_bytes_per_second();
  node.requests = static_cast<int64_t>(message.requests());
  node.hedges = static_cast<int64_t>(message.hedges());
  node.failures = static_cast<int64_t>(message.failures());
  node.losses = static_cast<int64_t>(message.losses());
  node.audits = static_cast<int64_t>(message.audits());
  node.evidence = message.evidence();
  node.work.round_trip = FromNs(message.round_trip_ns());
  node.work.execute = FromNs(message.execute_ns());
  node.work.disk_wait = FromNs(message.disk_wait_ns());
  node.work.queue = FromNs(message.queue_ns());
  node.work.expert_hits = static_cast<int64_t>(message.expert_hits());
  node.work.expert_misses = static_cast<int64_t>(message.expert_misses());
  node.work.expert_bytes = message.expert_bytes();
  node.layer_p50 = FromNs(message.layer_p50_ns());
  node.layer_p95 = FromNs(message.layer_p95_ns());
  return node;
}

void ToMessage(const Strike& strike, v1::DrillRequest* message) {
  if (std::holds_alternative<KillStrike>(strike)) {
    message->mutable_kill();
  } else if (const auto* slow = std::get_if<SlowStrike>(&strike)) {
    message->mutable_slow()->set_factor(static_cast<uint32_t>(slow->factor));
    message->mutable_slow()->set_duration_ms(
        static_cast<uint32_t>(absl::ToInt64Milliseconds(slow->duration)));
  } else if (const auto* corrupt = std::get_if<CorruptStrike>(&strike)) {
    message->mutable_corrupt()->set_records(static_cast<uint32_t>(corrupt->records));
  }
}

DrillReport FromMessage(const v1::DrillResult& message) {
  DrillReport report;
  report.same_tokens = message.same_tokens();
  report.same_logits = message.same_logits();
  report.steady_before = FromNs(message.steady_before_ns());
  report.longest = FromNs(message.longest_ns());
  report.steady_after = FromNs(message.steady_after_ns());
  return report;
}

}  // namespace

struct ClusterClient::Impl {
  std::string address;
  std::unique_ptr<v1::Cluster::Stub> stub;

  absl::Status Named(const grpc::Status& status) const {
    if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return absl::FailedPreconditionError(
          absl::StrCat("what listens at ", address, " is not `shoal serve`; perhaps it is a node"));
    }
    const absl::Status error = FromGrpcStatus(status);
    if (absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error)) {
      return absl::Status(error.code(),
                          absl::StrCat("coordinator at ", address, ": ", error.message(),
                                       "; is `shoal serve` running there?"));
    }
    return Annotate(error, absl::StrCat("coordinator at ", address));
  }
};

ClusterClient::ClusterClient(const std::string& address, SecurityPtr own)
    : impl_(std::make_unique<Impl>(
          Impl{address,
               v1::Cluster::NewStub(MakeChannel(
                   address, MakeChannelCredentials(
                                {std::move(own), ChannelSecurity::Peer::kCoordinator, ""})))})) {}
ClusterClient::~ClusterClient() = default;

absl::StatusOr<ClusterStatus> ClusterClient::Status() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::ClusterStatusReply reply;
  SHOAL_RETURN_IF_ERROR(
      impl_->Named(impl_->stub->Status(&context, v1::ClusterStatusRequest(), &reply)));
  ClusterStatus status;
  status.identity = reply.container().identity();
  status.codec = reply.codec();
  status.epoch = reply.epoch();
  status.stands_in = reply.stands_in();
  SHOAL_ASSIGN_OR_RETURN(status.own_slices, Slices(reply.own_slices()));
  status.uptime = absl::Milliseconds(reply.uptime_ms());
  for (const v1::NodeStatus& message : reply.nodes()) {
    SHOAL_ASSIGN_OR_RETURN(PoolNodeStatus node, FromMessage(message));
    status.nodes.push_back(std::move(node));
  }
  return status;
}

absl::Status ClusterClient::Drain(const std::string& node, absl::Duration wait) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(wait) +
                       kAnswerWithin);
  v1::DrainRequest request;
  request.set_node(node);
  request.set_wait_ms(static_cast<uint32_t>(absl::ToInt64Milliseconds(wait)));
  v1::DrainReply reply;
  return impl_->Named(impl_->stub->Drain(&context, request, &reply));
}

absl::Status ClusterClient::Undrain(const std::string& node) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::DrainRequest request;
  request.set_node(node);
  request.set_undo(true);
  v1::DrainReply reply;
  return impl_->Named(impl_->stub->Drain(&context, request, &reply));
}

absl::StatusOr<PoolPlan> ClusterClient::Plan() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::GetPlanReply reply;
  SHOAL_RETURN_IF_ERROR(impl_->Named(impl_->stub->GetPlan(&context, v1::GetPlanRequest(), &reply)));
  return FromMessage(reply.plan());
}

absl::Status ClusterClient::ChangePlan(const PoolPlan& plan, const std::stop_token& stop) {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  v1::ChangePlanRequest request;
  ToMessage(plan, request.mutable_plan());
  v1::ChangePlanReply reply;
  return impl_->Named(impl_->stub->ChangePlan(&context, request, &reply));
}

absl::StatusOr<DrillReport> ClusterClient::Drill(
    const std::string& node, const Strike& strike, int64_t tokens,
    const std::function<void(int, int64_t, absl::Duration)>& on_token,
    const std::stop_token& stop) {
  grpc::ClientContext context;
  const std::stop_callback cancel(stop, [&context] { context.TryCancel(); });
  v1::ClusterDrillRequest request;
  request.set_node(node);
  request.set_tokens(static_cast<uint32_t>(tokens));
  ToMessage(strike, request.mutable_strike());
  const auto reader = impl_->stub->Drill(&context, request);
  std::optional<DrillReport> report;
  v1::ClusterDrillEvent event;
  while (reader->Read(&event)) {
    if (event.has_token()) {
      on_token(static_cast<int>(event.token().answer()), event.token().index(),
               FromNs(event.token().time_ns()));
    } else if (event.has_result()) {
      report = FromMessage(event.result());
    }
  }
  SHOAL_RETURN_IF_ERROR(impl_->Named(reader->Finish()));
  if (!report) {
    return absl::DataLossError(
        absl::StrCat("coordinator at ", impl_->address, ": the drill ended without a result"));
  }
  return *report;
}

}  // namespace shoal

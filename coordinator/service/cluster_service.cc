#include "coordinator/service/cluster_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/stop_wait.h"
#include "coordinator/drill.h"
#include "coordinator/service/node_strike.h"
#include "coordinator/service/plan_message.h"
#include "coordinator/service/revocation_spreader.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/slice_message.h"
#include "shoal/v1/cluster.grpc.pb.h"

namespace shoal {
namespace {

constexpr uint32_t kLongestDrainWaitMs = 600'000;

uint64_t Nanoseconds(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
}

void ToMessage(const PoolNodeStatus& node, v1::NodeStatus* message) {
  message->set_name(node.name);
  message->set_address(node.address);
  message->set_state(std::string(NodeStateName(node.state)));
  message->set_last_error(node.last_error);
  for (const ExpertSlice& slice : node.computes) {
    shoal::ToMessage(slice, message->add_computes());
  }
  for (const ExpertSlice& slice : node.slices) {
    shoal::ToMessage(slice, message->add_stored());
  }
  message->set_read_bytes_per_second(node.read_bytes_per_second);
  message->set_requests(static_cast<uint64_t>(node.requests));
  message->set_hedges(static_cast<uint64_t>(node.hedges));
  message->set_failures(static_cast<uint64_t>(node.failures));
  message->set_losses(static_cast<uint64_t>(node.losses));
  message->set_audits(static_cast<uint64_t>(node.audits));
  message->set_evidence(node.evidence);
  message->set_round_trip_ns(Nanoseconds(node.work.round_trip));
  message->set_execute_ns(Nanoseconds(node.work.execute));
  message->set_disk_wait_ns(Nanoseconds(node.work.disk_wait));
  message->set_queue_ns(Nanoseconds(node.work.queue));
  message->set_expert_hits(static_cast<uint64_t>(node.work.expert_hits));
  message->set_expert_misses(static_cast<uint64_t>(node.work.expert_misses));
  message->set_expert_bytes(node.work.expert_bytes);
  message->set_layer_p50_ns(Nanoseconds(node.layer_p50));
  message->set_layer_p95_ns(Nanoseconds(node.layer_p95));
}

absl::Status CheckAddresses(const PoolPlan& plan, bool beyond_loopback) {
  for (const PoolNode& node : plan.remote()) {
    SHOAL_ASSIGN_OR_RETURN(const NetAddress address, ParseNetAddress(node.address));
    if (!IsLoopback(address) && !beyond_loopback) {
      return absl::FailedPreconditionError(
          absl::StrCat("node ", node.name, " at ", node.address,
                       " is beyond the coordinator's machine, and connections are not "
                       "protected: start `shoal serve` with --tls, or with --insecure"));
    }
  }
  return absl::OkStatus();
}

// Stops the work of a call when its caller is gone or the service ends.
class StopOfCall {
 public:
  StopOfCall(const grpc::ServerContext& context, const std::stop_token& service)
      : on_service_stop_(service, [this] { source_.request_stop(); }),
        watcher_([this, &context](const std::stop_token& done) {
          // A handler that blocks has no other way to learn it.
          while (WaitUnlessStopped(kLookAgain, done).ok()) {
            if (context.IsCancelled()) {
              source_.request_stop();
            }
          }
        }) {}

  std::stop_token token() const { return source_.get_token(); }

 private:
  static constexpr absl::Duration kLookAgain = absl::Milliseconds(100);
  std::stop_source source_;
  std::stop_callback<std::function<void()>> on_service_stop_;
  std::jthread watcher_;  // last: uses what is above
};

}  // namespace

class ClusterService::Impl final : public v1::Cluster::Service {
 public:
  Impl(Model& model, const Options& options, const Clock& clock)
      : model_(model), options_(options), clock_(clock), started_(clock.Now()) {
    if (options_.own != nullptr && model_.pool() != nullptr) {
      spreader_ = std::make_unique<RevocationSpreader>(*model_.pool(), options_.own);
    }
  }

  void Stop() { stop_.request_stop(); }

  grpc::Status Status(grpc::ServerContext* /*context*/, const v1::ClusterStatusRequest* /*request*/,
                      v1::ClusterStatusReply* reply) override {
    const Manifest& manifest = model_.container().manifest();
    reply->mutable_container()->set_container_version(kContainerVersion);
    reply->mutable_container()->set_identity(manifest.identity);
    const EffectiveMode mode = model_.mode();
    reply->set_codec(mode.experts);
    reply->set_stands_in(mode.expert_io.cache_records > 0);
    reply->set_uptime_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(clock_.Now() - started_)));
    if (model_.pool() != nullptr) {
      const PoolPlan plan = model_.pool()->plan();
      reply->set_epoch(plan.epoch);
      if (const PoolNode* own = plan.coordinator(); own != nullptr) {
        for (const ExpertSlice& slice : own->slices) {
          shoal::ToMessage(slice, reply->add_own_slices());
        }
      }
    }
    for (const PoolNodeStatus& node : mode.nodes) {
      ToMessage(node, reply->add_nodes());
    }
    return grpc::Status::OK;
  }

  grpc::Status Drain(grpc::ServerContext* context, const v1::DrainRequest* request,
                     v1::DrainReply* /*reply*/) override {
    const StopOfCall stop(*context, stop_.get_token());
    return ToGrpcStatus(DrainNode(*request, stop.token()));
  }

  grpc::Status GetPlan(grpc::ServerContext* /*context*/, const v1::GetPlanRequest* /*request*/,
                       v1::GetPlanReply* reply) override {
    const absl::StatusOr<PoolBackend*> pool = Pool();
    if (pool.ok()) {
      shoal::ToMessage((*pool)->plan(), reply->mutable_plan());
    }
    return ToGrpcStatus(pool.status());
  }

  grpc::Status ChangePlan(grpc::ServerContext* context, const v1::ChangePlanRequest* request,
                          v1::ChangePlanReply* /*reply*/) override {
    const StopOfCall stop(*context, stop_.get_token());
    return ToGrpcStatus(GoOverTo(request->plan(), stop.token()));
  }

  grpc::Status Drill(grpc::ServerContext* context, const v1::ClusterDrillRequest* request,
                     grpc::ServerWriter<v1::ClusterDrillEvent>* writer) override {
    if (drilling_.exchange(true)) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "a drill is under way; wait for its end"};
    }
    const absl::Status status = RunOneDrill(*context, *request, *writer);
    drilling_ = false;
    return ToGrpcStatus(status);
  }

 private:
  absl::StatusOr<PoolBackend*> Pool() {
    if (model_.pool() == nullptr) {
      return absl::FailedPreconditionError(
          "this coordinator has no pool: start `shoal serve` with --nodes");
    }
    return model_.pool();
  }

  absl::Status DrainNode(const v1::DrainRequest& request, const std::stop_token& stop) {
    SHOAL_ASSIGN_OR_RETURN(PoolBackend * pool, Pool());
    if (request.wait_ms() > kLongestDrainWaitMs) {
      return absl::InvalidArgumentError(absl::StrCat("wait_ms: ", request.wait_ms(), "; at most ",
                                                     kLongestDrainWaitMs, " are accepted"));
    }
    return request.undo()
               ? pool->UndrainNode(request.node())
               : pool->DrainNode(request.node(), absl::Milliseconds(request.wait_ms()), stop);
  }

  absl::Status GoOverTo(const v1::Plan& message, const std::stop_token& stop) {
    SHOAL_ASSIGN_OR_RETURN(PoolBackend * pool, Pool());
    SHOAL_ASSIGN_OR_RETURN(PoolPlan plan, FromMessage(message));
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, model_.container().manifest()));
    SHOAL_RETURN_IF_ERROR(CheckAddresses(plan, options_.beyond_loopback));
    return pool->ChangePlan(std::move(plan), stop);
  }

  // How a node is reached. Without a plan its name is its own word, which a certificate need not
  // have.
  ChannelSecurity Way(const std::string& name) const {
    const bool planned = !model_.pool()->plan().identity.empty();
    return {options_.own, ChannelSecurity::Peer::kNode, planned ? name : ""};
  }

  // Of the node with that name, which takes part in drills.
  absl::StatusOr<std::string> AddressToStrike(const std::string& name) {
    SHOAL_ASSIGN_OR_RETURN(const PoolBackend* pool, Pool());
    for (const PoolNodeStatus& node : pool->Nodes()) {
      if (node.name != name) {
        continue;
      }
      if (node.state == NodeState::kLost) {
        return absl::FailedPreconditionError(absl::StrCat(
            "node ", name, " is lost already; start it, and drill it when it is live"));
      }
      // Said before an answer is computed, not after.
      SHOAL_RETURN_IF_ERROR(EndStrikes(node.address, Way(name)));
      return node.address;
    }
    return absl::NotFoundError(
        absl::StrCat("the pool has no node ", name, "; `shoal cluster status` lists those it has"));
  }

  absl::Status RunOneDrill(const grpc::ServerContext& context,
                           const v1::ClusterDrillRequest& request,
                           grpc::ServerWriter<v1::ClusterDrillEvent>& writer) {
    const v1::DrillRequest& strike = request.strike();
    if (!strike.has_kill() && !strike.has_slow() && !strike.has_corrupt()) {
      return absl::InvalidArgumentError("strike: kill, slow and corrupt are accepted");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::string address, AddressToStrike(request.node()));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, model_.NewSession());
    const StopOfCall stop(context, stop_.get_token());
    DrillOptions options;
    options.tokens = request.tokens();
    options.strike = [&] {
      v1::ClusterDrillEvent event;
      event.mutable_strike()->set_before_token(
          static_cast<uint32_t>(StrikeIndex(request.tokens())));
      writer.Write(event);
      return StrikeNode(address, Way(request.node()), strike);
    };
    options.on_token = [&](int answer, int64_t index, absl::Duration time) {
      v1::ClusterDrillEvent event;
      event.mutable_token()->set_answer(static_cast<uint32_t>(answer));
      event.mutable_token()->set_index(static_cast<uint32_t>(index));
      event.mutable_token()->set_time_ns(Nanoseconds(time));
      writer.Write(event);
    };
    const absl::StatusOr<DrillReport> drilled = RunDrill(model_, *session, options, stop.token());
    if (!strike.has_kill()) {
      // What is left of it is not for the next answer. A node that is gone has nothing left.
      EndStrikes(address, Way(request.node())).IgnoreError();
    }
    SHOAL_RETURN_IF_ERROR(drilled.status());
    const DrillReport& report = *drilled;
    v1::ClusterDrillEvent event;
    v1::DrillResult& result = *event.mutable_result();
    result.set_same_tokens(report.same_tokens);
    result.set_same_logits(report.same_logits);
    result.set_steady_before_ns(Nanoseconds(report.steady_before));
    result.set_longest_ns(Nanoseconds(report.longest));
    result.set_steady_after_ns(Nanoseconds(report.steady_after));
    writer.Write(event);
    return absl::OkStatus();
  }

  Model& model_;
  const Options options_;
  const Clock& clock_;
  const absl::Time started_;
  std::stop_source stop_;
  std::atomic<bool> drilling_{false};
  std::unique_ptr<RevocationSpreader> spreader_;  // null without TLS or a pool
};

ClusterService::ClusterService(Model& model, const Options& options, const Clock& clock)
    : impl_(std::make_unique<Impl>(model, options, clock)) {}
ClusterService::~ClusterService() = default;

grpc::Service& ClusterService::grpc_service() { return *impl_; }
void ClusterService::Stop() { impl_->Stop(); }

}  // namespace shoal

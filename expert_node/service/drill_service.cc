#include "expert_node/service/drill_service.h"

#include <grpcpp/support/server_callback.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status/status_macros.h"
#include "expert_node/service/grpc_status.h"
#include "shoal/v1/drill.grpc.pb.h"

namespace shoal {
namespace {

constexpr uint32_t kLeastFactor = 2;
constexpr uint32_t kMostFactor = 1000;
constexpr uint32_t kMostDurationMs = 600'000;
constexpr uint32_t kMostRecords = 10'000;

absl::Status CheckRange(absl::string_view field, uint32_t value, uint32_t least, uint32_t most) {
  return value >= least && value <= most
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat(field, " is ", value, "; ", least, " to ", most, " is accepted"));
}

}  // namespace

class DrillService::Impl final : public v1::Drill::CallbackService {
 public:
  Impl(NodeDrills& drills, Options options) : drills_(drills), options_(std::move(options)) {}

  grpc::ServerUnaryReactor* Start(grpc::CallbackServerContext* context,
                                  const v1::DrillRequest* request,
                                  v1::DrillReply* /*reply*/) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(ToGrpcStatus(Apply(*request)));
    return reactor;
  }

 private:
  absl::Status Apply(const v1::DrillRequest& request) {
    switch (request.kind_case()) {
      case v1::DrillRequest::kKill:
        Note("killed");
        options_.kill();
        return absl::OkStatus();
      case v1::DrillRequest::kSlow:
        return Slow(request.slow());
      case v1::DrillRequest::kCorrupt:
        SHOAL_RETURN_IF_ERROR(
            CheckRange("corrupt.records", request.corrupt().records(), 1, kMostRecords));
        Note(absl::StrCat("the next ", request.corrupt().records(), " records are damaged"));
        drills_.corrupt().Begin(request.corrupt().records());
        return absl::OkStatus();
      case v1::DrillRequest::kEnd:
        Note("over");
        drills_.slowdown().End();
        drills_.corrupt().End();
        return absl::OkStatus();
      case v1::DrillRequest::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("kind is absent, or one that this node does not know");
  }

  absl::Status Slow(const v1::SlowDrill& slow) {
    SHOAL_RETURN_IF_ERROR(CheckRange("slow.factor", slow.factor(), kLeastFactor, kMostFactor));
    SHOAL_RETURN_IF_ERROR(CheckRange("slow.duration_ms", slow.duration_ms(), 1, kMostDurationMs));
    Note(absl::StrCat("every layer takes ", slow.factor(), " times its time, for ",
                      slow.duration_ms(), " ms"));
    drills_.slowdown().Begin(slow.factor(), absl::Milliseconds(slow.duration_ms()));
    return absl::OkStatus();
  }

  void Note(const std::string& text) const {
    if (options_.note) {
      options_.note(absl::StrCat("drill: ", text));
    }
  }

  NodeDrills& drills_;
  const Options options_;
};

void DrillService::KillProcess() { ::kill(::getpid(), SIGKILL); }

DrillService::DrillService(NodeDrills& drills, Options options)
    : impl_(std::make_unique<Impl>(drills, std::move(options))) {}
DrillService::~DrillService() = default;

grpc::Service& DrillService::grpc_service() { return *impl_; }

}  // namespace shoal

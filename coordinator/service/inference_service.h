// The gRPC service Inference (proto/shoal/v1/inference.proto, docs/protocol.md): answers of a resident
// model for programs.
#ifndef SHOAL_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_
#define SHOAL_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log_line.h"
#include "common/metrics/prometheus_text.h"
#include "common/sync/clock.h"
#include "coordinator/model.h"
#include "expert_node/service/call_limits.h"

namespace grpc {
class ServerContextBase;
class Service;
}  // namespace grpc

namespace shoal {

class ServerGuard;

// Thread-safe. Calls arrive on gRPC's threads, which never compute: one thread reads texts, and one a
// session generates. Of those one computes at a time, a token or a chunk of a prompt each, in turn.
class InferenceService {
 public:
  struct Options {
    std::string model_name = {};  // CheckModelName's
    int num_sessions = 1;         // calls that are computed at a time, 1 to 1024
    int64_t max_waiting = 16;     // in line behind them, 0 to 10,000
    // Of one caller, computed and in line together, at least 1; absent: half of all, and no fewer than
    // the sessions.
    std::optional<int64_t> max_of_caller = {};
    absl::Duration max_time = absl::InfiniteDuration();  // of a call, the wait included
    // How long a client may be kMaxEvents (generation_stream.h) behind while others wait for its session.
    absl::Duration behind_limit = absl::Seconds(5);
    // Who calls, as CallLimits know it; empty where that is not known.
    std::function<std::string(const grpc::ServerContextBase& call)> caller =
        [](const grpc::ServerContextBase&) { return std::string(); };
    // Gets a line for every call that is computed, when it has ended; never a text of a client.
    LogWriter log = [](const LogLine&) {};
  };

  // Opens the sessions. `model` and `clock` outlive the service, which outlives the server that it is
  // registered with.
  //   INVALID_ARGUMENT  an option is out of its range
  //   and Model::NewSession's errors
  static absl::StatusOr<std::unique_ptr<InferenceService>> Create(Model& model,
                                                                  const Options& options,
                                                                  const Clock& clock);
  ~InferenceService();

  // What its calls take at most, for ModelOptions::client_bytes. Not the sessions.
  static uint64_t MemoryBytes(const Options& options, int64_t context_tokens);

  // For ServerBuilder::RegisterService; the service's.
  grpc::Service& grpc_service();
  // The largest message a rule-abiding client sends: what the server should accept at least.
  int64_t MaxRequestBytes() const;
  // The server's, before it takes calls; there as long as that. Answers have a CallWatch of it.
  void SetGuard(ServerGuard& guard);
  // What one caller may have open of its calls, for the server.
  static CallLimits::Changes Limits(const Options& options);

  // shoal_inference_*: what is computed, what waits, and what was done. docs/operations.md lists the
  // names, which stay as they are.
  void AppendMetrics(PrometheusText& text);

  // From now on calls are refused with UNAVAILABLE, and so are those in line. GetModel still answers.
  void Drain();
  // Waits until no call is open, `timeout` at most; false where some are left.
  bool WaitUntilDrained(absl::Duration timeout);
  // Ends those that are left, with UNAVAILABLE. Returns at once.
  void Stop();

 private:
  class Impl;
  explicit InferenceService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// A name by which clients may ask for a model: 1 to 63 letters, digits, '.', '_' and '-'. INVALID_ARGUMENT
// otherwise.
absl::Status CheckModelName(const std::string& name);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_INFERENCE_SERVICE_H_

#include "expert_node/program/node_program.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/container/partition_writer.h"
#include "common/container/slice_json.h"
#include "common/container/staging_directory.h"
#include "common/io/byte_size.h"
#include "common/io/profile_store.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "common/sync/cpu_list.h"
#include "common/sync/end_signals.h"
#include "common/sync/service_manager.h"
#include "common/sync/thread_pool.h"
#include "common/tls/identity.h"
#include "common/tls/invites.h"
#include "expert_node/cpu_choice.h"
#include "expert_node/drill/node_drills.h"
#include "expert_node/drill/slowed_backend.h"
#include "expert_node/fill/partition_filler.h"
#include "expert_node/kernel_choice.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/node_memory_plan.h"
#include "expert_node/node_probe.h"
#include "expert_node/program/empty_node.h"
#include "expert_node/program/node_metrics.h"
#include "expert_node/service/drill_service.h"
#include "expert_node/service/join_client.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/metrics_server.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/terms.h"
#include "expert_node/split_calibration.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

constexpr absl::Duration kMeasureTime = absl::Milliseconds(250);

// The host's name as far as a node may be called so, and a number.
std::string DefaultName(int number) {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  std::string name(host);
  std::replace_if(
      name.begin(), name.end(),
      [](char c) { return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-'; }, '-');
  constexpr size_t kRoomForNumber = 11;
  constexpr size_t kMostBytes = 63;
  return absl::StrCat(name.substr(0, kMostBytes - kRoomForNumber), "-", number);
}

// Everything that serves, in the order in which it is made; it goes in the other order.
struct Node {
  NodeExperts experts;
  NodeMemoryPlan plan;
  std::unique_ptr<ThreadPool> pool;
  std::optional<CalibratedSplits> splits;  // absent where nothing is measured
  std::unique_ptr<NodeDrills> drills;      // absent where none is allowed; also the next two
  std::unique_ptr<LocalExpertBackend> local;
  std::unique_ptr<SlowedBackend> slowed;
  std::unique_ptr<DrillService> drill_service;
  std::unique_ptr<HeldUnits> units;
  std::unique_ptr<NodeService> service;
  std::unique_ptr<NodeServer> server;
  std::unique_ptr<MetricsServer> metrics;  // absent where none were asked for

  ExpertBackend& backend() {
    return slowed != nullptr ? static_cast<ExpertBackend&>(*slowed) : *local;
  }
};

absl::StatusOr<uint64_t> SizeOf(absl::string_view flag, const std::string& text) {
  absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
  SHOAL_RETURN_IF_ERROR(Annotate(bytes.status(), flag));
  return bytes;
}

absl::StatusOr<NodePlanOptions> PlanOptions(const NodeFlags& flags) {
  NodePlanOptions options;
  SHOAL_ASSIGN_OR_RETURN(
      options.cpus,
      ChooseCpus(flags.cpus, flags.threads > 0 ? std::optional(flags.threads) : std::nullopt));
  options.num_threads = flags.threads > 0 ? static_cast<int>(flags.threads) : UsableCpus();
  if (flags.max_rows > 0) {
    options.max_rows = flags.max_rows;
  }
  if (!flags.budget.empty()) {
    SHOAL_ASSIGN_OR_RETURN(options.budget_bytes, SizeOf("--budget", flags.budget));
  }
  return options;
}

// Bytes a second that --drill-read-rate allows; 0: as many as the disk gives.
absl::StatusOr<uint64_t> DrillReadRate(const NodeFlags& flags) {
  if (flags.drill_read_rate.empty()) {
    return 0;
  }
  constexpr uint64_t kLeast = 1000;
  SHOAL_ASSIGN_OR_RETURN(const uint64_t rate, SizeOf("--drill-read-rate", flags.drill_read_rate));
  return rate >= kLeast
             ? absl::StatusOr<uint64_t>(rate)
             : absl::InvalidArgumentError(absl::StrCat("--drill-read-rate ", flags.drill_read_rate,
                                                       ": ", kLeast, " B or more is accepted"));
}

// With the first slice for all.
absl::Status Calibrate(const NodeFlags& flags, KernelTarget kernels, Node& node) {
  const std::string directory = ChooseProfileDirectory(flags.profile);
  if (flags.no_measure || directory.empty()) {
    return absl::OkStatus();
  }
  const CalibrationCase calibration{node.experts.model, node.experts.slices.front().slice, kernels,
                                    ExpertArithmetic::kExact};
  SHOAL_ASSIGN_OR_RETURN(node.splits, CalibrateSplits(calibration, ProfileStore(directory),
                                                      *node.pool, Clock::Real()));
  return absl::OkStatus();
}

absl::Status OpenBackend(const NodeFlags& flags, const NodePlanOptions& options, Node& node) {
  const Clock& clock = Clock::Real();
  node.pool = std::make_unique<ThreadPool>(options.num_threads, options.cpus);
  LocalExpertBackend::Options backend;
  backend.cache_records = node.plan.cache_records;
  SHOAL_ASSIGN_OR_RETURN(backend.kernels, ChooseKernels(flags.kernels));
  SHOAL_RETURN_IF_ERROR(Calibrate(flags, backend.kernels, node));
  if (node.splits) {
    backend.splits = node.splits->splits;
  }
  if (flags.allow_drill) {
    SHOAL_ASSIGN_OR_RETURN(const uint64_t read_rate, DrillReadRate(flags));
    node.drills = std::make_unique<NodeDrills>(read_rate, clock);
    backend.wrap_reader = node.drills->wrap_reader();
  }
  SHOAL_ASSIGN_OR_RETURN(node.local,
                         LocalExpertBackend::Open(node.experts.model, node.experts.slices, backend,
                                                  *node.pool, clock));
  node.experts.model.codebooks = {};  // the backend has its own; the rest needs sizes
  SHOAL_ASSIGN_OR_RETURN(node.units, HeldUnits::Open(node.experts.model.layout, node.experts.slices,
                                                     backend.wrap_reader));
  SHOAL_RETURN_IF_ERROR(ProbeExperts(*node.local, node.experts.model, *node.units));
  if (const ExpertIoMode mode = node.local->io_mode(); !mode.direct) {
    Note(absl::StrCat("experts are read through the page cache, which is slower: ",
                      mode.why_not_direct));
  }
  if (flags.allow_drill) {
    node.slowed = std::make_unique<SlowedBackend>(
        *node.local, absl::Milliseconds(flags.drill_delay_ms), node.drills->slowdown(), clock);
    node.drill_service = std::make_unique<DrillService>(*node.drills, DrillService::Options{Note});
  }
  return absl::OkStatus();
}

// Measures, and listens.
absl::Status Serve(const NodeFlags& flags, const NetAddress& address,
                   const ServerSecurity& security, NodeService::Options& options, Node& node) {
  const Clock& clock = Clock::Real();
  // Without a port of its own the process tells the nodes of a machine apart.
  options.name = flags.name.empty() ? node.experts.name : flags.name;
  if (options.name.empty()) {
    options.name = DefaultName(address.port > 0 ? address.port : ::getpid());
  }
  options.directory = flags.directory;
  options.max_rows = node.plan.max_rows;
  options.own = security.own;
  options.log = [](const LogLine& line) { WriteLogLine(kProgram, line); };
  if (!flags.no_measure) {
    SHOAL_ASSIGN_OR_RETURN(options.read_bytes_per_second,
                           MeasureReadRate(*node.units, kMeasureTime, clock));
    SHOAL_ASSIGN_OR_RETURN(
        options.compute_bytes_per_second,
        MeasureComputeRate(*node.local, node.experts.model, *node.units, kMeasureTime, clock));
  }
  SHOAL_ASSIGN_OR_RETURN(node.service, NodeService::Create(node.backend(), node.experts.model,
                                                           MakeTerms(node.experts.manifest),
                                                           *node.units, options, clock));
  SHOAL_ASSIGN_OR_RETURN(
      node.server, NodeServer::Start(*node.service, address, node.drill_service.get(), security));
  if (!flags.metrics.empty()) {
    SHOAL_ASSIGN_OR_RETURN(const NetAddress metrics, ParseListenAddress(flags.metrics));
    SHOAL_ASSIGN_OR_RETURN(node.metrics, MetricsServer::Start(metrics, [&node] {
                             return NodeMetrics(node.plan, *node.local, *node.service);
                           }));
  }
  return absl::OkStatus();
}

void SayReady(const NodeFlags& flags, const NodeService::Options& options, const Node& node) {
  const std::string where = node.server->address().ToString();
  nlohmann::json line = {{"listening_on", where},
                         {"name", options.name},
                         {"identity", node.experts.manifest.identity},
                         {"max_rows", options.max_rows},
                         {"budget_bytes", node.plan.budget_bytes},
                         {"cache_records", node.plan.cache_records},
                         {"direct_io", node.local->io_mode().direct},
                         {"num_threads", node.pool->num_threads()},
                         {"cpus", FormatCpuList(AllowedCpus())},
                         {"read_bytes_per_second", options.read_bytes_per_second},
                         {"compute_bytes_per_second", options.compute_bytes_per_second}};
  if (node.metrics != nullptr) {
    const std::string metrics = node.metrics->address().ToString();
    line["metrics_on"] = metrics;
    Note(absl::StrCat("metrics at http://", metrics, "/metrics"));
  }
  std::string threads = absl::StrCat("computes on ", node.pool->num_threads(), " threads, CPUs ",
                                     FormatCpuList(AllowedCpus()));
  if (node.splits) {
    line["expert_splits"] = node.splits->splits.ToJson();
    line["expert_splits_origin"] = node.splits->origin;
    absl::StrAppend(&threads, "; experts by ", node.splits->splits.ToString(), " (",
                    node.splits->origin, ")");
  }
  Note(threads);
  PrintLine(flags.json, line, absl::StrCat("listening on ", where));
  TellServiceManager(absl::StrCat("READY=1\nSTATUS=serving on ", where));
}

// Waits for a signal, then drains. The next one has its usual effect: it ends the process at once.
void ServeUntilSignal(const NodeFlags& flags, EndSignals& signals, Node& node) {
  signals.Wait();
  TellServiceManager("STOPPING=1\nSTATUS=draining");
  Note(
      "draining: requests in flight are finished, then the node ends; a second signal ends it now");
  if (!node.server->Drain(absl::Seconds(flags.grace_s))) {
    Note(absl::StrCat("streams were still open after ", flags.grace_s, " s and have been cut"));
  }
}

absl::Status CheckMetrics(const NodeFlags& flags) {
  if (flags.metrics.empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<NetAddress> address = ParseListenAddress(flags.metrics);
  SHOAL_RETURN_IF_ERROR(Annotate(address.status(), "--metrics"));
  if (!IsLoopback(*address) && !flags.insecure) {
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics ", flags.metrics, " is not loopback, and metrics are plain HTTP ",
                     "for whoever reaches the port. Pass --insecure to accept that"));
  }
  return absl::OkStatus();
}

// What is wrong with the flags, whatever the state of things.
absl::Status CheckFlags(const NodeFlags& flags, const absl::StatusOr<NetAddress>& address,
                        const absl::StatusOr<NodePlanOptions>& options) {
  SHOAL_RETURN_IF_ERROR(address.status());
  SHOAL_RETURN_IF_ERROR(options.status());
  SHOAL_RETURN_IF_ERROR(DrillReadRate(flags).status());
  SHOAL_RETURN_IF_ERROR(ChooseKernels(flags.kernels).status());
  if (!flags.name.empty()) {
    SHOAL_RETURN_IF_ERROR(CheckNodeName(flags.name, "--name"));
  }
  if (!flags.join.empty() && flags.tls.empty()) {
    return absl::InvalidArgumentError(
        "--join makes an identity: say with --tls DIR where to put it");
  }
  if (flags.directory.empty()) {
    return flags.join.empty() ? absl::InvalidArgumentError(
                                    "DIR is missing: the partition or container to serve, or the "
                                    "place where one is to be filled (see --help)")
                              : absl::OkStatus();
  }
  if (IsVacant(flags.directory)) {
    absl::Status place = CheckFillTarget(flags.directory);
    if (absl::IsNotFound(place)) {
      return place;
    }
  }
  // With --tls the certificate has the name.
  if (flags.name.empty() && flags.tls.empty() && IsVacant(flags.directory)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.directory,
                     " does not exist or is empty, so this node has to be filled: pass --name, ",
                     "by which the pool's plan knows it (or check the path)"));
  }
  SHOAL_RETURN_IF_ERROR(CheckMetrics(flags));
  if (!IsLoopback(*address) && !flags.insecure && flags.tls.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flags.listen, " is not loopback, and without --tls anyone who reaches the ",
                     "port can use the node. Pass --tls DIR, or --insecure to accept that"));
  }
  return absl::OkStatus();
}

// Gets an identity with an invitation.
absl::Status Join(const NodeFlags& flags) {
  SHOAL_RETURN_IF_ERROR(
      Annotate(CheckIdentityPlace(flags.tls),
               "--join: this node has an identity already; leave --join out to use it"));
  const absl::StatusOr<InviteCode> code = ParseInviteCode(flags.join);
  SHOAL_RETURN_IF_ERROR(Annotate(code.status(), "--join"));
  const absl::StatusOr<Identity> identity = JoinPool(*code, absl::Now());
  SHOAL_RETURN_IF_ERROR(Annotate(identity.status(), "--join"));
  SHOAL_RETURN_IF_ERROR(StoreIdentity(flags.tls, *identity));
  Note(absl::StrCat("joined the pool ", identity->certificate.pool, " as ",
                    identity->certificate.Who(), "; the identity is in ", flags.tls));
  return absl::OkStatus();
}

// What --tls says; takes the node's name from the certificate.
absl::StatusOr<ServerSecurity> SecurityOf(NodeFlags& flags) {
  ServerSecurity security;
  security.log = [](absl::string_view line) { Note(line); };
  if (flags.tls.empty()) {
    return security;
  }
  if (!flags.join.empty()) {
    SHOAL_RETURN_IF_ERROR(Join(flags));
  }
  absl::StatusOr<std::shared_ptr<TransportSecurity>> own =
      TransportSecurity::Load(flags.tls, {TlsRole::kNode}, Clock::Real());
  SHOAL_RETURN_IF_ERROR(Annotate(own.status(), "--tls"));
  const std::string& name = (*own)->identity().certificate.name;
  if (!flags.name.empty() && flags.name != name) {
    return absl::FailedPreconditionError(
        absl::StrCat("--name ", flags.name, ": the certificate in ", flags.tls, " is that of node ",
                     name, "; leave --name out, or get a certificate for that name"));
  }
  flags.name = name;
  if (const std::string warning = (*own)->ExpiryWarning(); !warning.empty()) {
    Note(warning);
  }
  security.own = *std::move(own);
  return security;
}

// Serves what is in the directory until a signal comes.
NodeExit ServePartition(const NodeFlags& flags, const NetAddress& address,
                        const ServerSecurity& security, NodePlanOptions options,
                        EndSignals& signals) {
  // Verifying and measuring take a while, and there is nothing to drain yet.
  std::optional<EndAtOnce> opening(signals);
  Node node;
  absl::StatusOr<NodeExperts> experts = OpenNodeExperts(flags.directory);
  if (!experts.ok()) {
    return Report(flags.json, experts.status());
  }
  // What an earlier process left that was killed just after it had been filled.
  StagingDirectory::RemoveLeftOver(WithoutTrailingSlashes(flags.directory), kPartitionStaging);
  node.experts = *std::move(experts);
  node.plan = PlanNodeMemory(node.experts, options);
  if (!node.plan.fits) {
    return Report(flags.json, absl::FailedPreconditionError(FormatBelowFloor(node.plan)),
                  NodeExit::kBudgetBelowFloor);
  }
  absl::Status status = OpenBackend(flags, options, node);
  if (status.ok()) {
    status = Serve(flags, address, security, options.service, node);
  }
  if (!status.ok()) {
    return Report(flags.json, status);
  }
  opening.reset();
  SayReady(flags, options.service, node);
  ServeUntilSignal(flags, signals, node);
  return NodeExit::kOk;
}

}  // namespace

NodeExit RunNode(NodeFlags flags) {
  EndSignals signals;
  absl::StatusOr<NetAddress> address = ParseListenAddress(flags.listen);
  absl::StatusOr<NodePlanOptions> options = PlanOptions(flags);
  if (const absl::Status status = CheckFlags(flags, address, options); !status.ok()) {
    return Report(flags.json, status, NodeExit::kUsage);
  }
  const bool joins_only = flags.directory.empty();
  // Said before work is done that would be for nothing.
  if (const absl::Status status = CheckCanListen(*address); !joins_only && !status.ok()) {
    return Report(flags.json, status);
  }
  // Last, because an invitation is good once.
  const absl::StatusOr<ServerSecurity> security = SecurityOf(flags);
  if (!security.ok()) {
    return Report(flags.json, security.status());
  }
  if (joins_only) {
    if (flags.json) {
      const Certificate& joined = security->own->identity().certificate;
      PrintLine(true, {{"name", joined.name}, {"pool", joined.pool}, {"tls", flags.tls}}, "");
    }
    return NodeExit::kOk;
  }
  if (!IsLoopback(*address) && security->own == nullptr) {
    Note(absl::StrCat("warning: ", flags.listen, " is open to anyone who reaches it: no TLS"));
  }
  if (flags.allow_drill) {
    Note(
        "warning: drills are allowed; whoever reaches the port can kill this node or slow it down");
  }
  if (IsVacant(flags.directory)) {
    const absl::StatusOr<EmptyNodeEnd> end = ServeEmptyNode(flags, signals, *security, *address);
    if (!end.ok()) {
      return Report(flags.json, end.status());
    }
    if (*end == EmptyNodeEnd::kSignal) {
      return NodeExit::kOk;
    }
  }
  return ServePartition(flags, *address, *security, *std::move(options), signals);
}

}  // namespace shoal

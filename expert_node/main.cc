// shoal-node: the program that serves a share of a model's experts to coordinators.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/container/manifest.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "common/sync/thread_pool.h"
#include "common/version.h"
#include "expert_node/local_expert_backend.h"
#include "expert_node/node_experts.h"
#include "expert_node/node_memory_plan.h"
#include "expert_node/node_probe.h"
#include "expert_node/service/node_server.h"
#include "expert_node/service/node_service.h"
#include "expert_node/service/terms.h"
#include "expert_node/slowed_backend.h"
#include "shoal/v1/types.pb.h"

namespace shoal {
namespace {

// How the program ends; docs/operations.md repeats them.
enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,
  kUsage = 2,
  kBudgetBelowFloor = 3,
  kDataDamaged = 4,
};

constexpr absl::Duration kMeasureTime = absl::Milliseconds(250);
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostDelayMs = 3'600'000;

struct Flags {
  std::string directory;
  std::string listen = "127.0.0.1:7071";
  std::string name;
  std::string budget;
  int64_t threads = 0;
  int64_t max_rows = 0;
  int64_t grace_s = 10;
  bool insecure = false;
  bool json = false;
  bool no_measure = false;
  bool allow_drill = false;
  int64_t drill_delay_ms = 0;
};

void Note(absl::string_view text) {
  std::fprintf(stderr, "shoal-node: %s\n", std::string(text).c_str());
}

// One line on standard output, at once: who started the node waits for it.
void PrintLine(const Flags& flags, const nlohmann::json& object, const std::string& text) {
  std::puts(flags.json ? object.dump().c_str() : text.c_str());
  std::fflush(stdout);
}

ExitCode Report(const Flags& flags, const absl::Status& status, ExitCode code) {
  const std::string message(status.message());
  Note(message);
  if (flags.json) {
    PrintLine(flags,
              {{"error",
                {{"code", absl::StatusCodeToString(status.code())},
                 {"message", message},
                 {"exit_code", static_cast<int>(code)}}}},
              "");
  }
  return code;
}

ExitCode Report(const Flags& flags, const absl::Status& status) {
  return Report(
      flags, status,
      status.code() == absl::StatusCode::kDataLoss ? ExitCode::kDataDamaged : ExitCode::kFailure);
}

// The signals that end the node, kept from every thread that is started later, so that the main
// thread can wait for one. One that was ignored from the start (nohup) stays ignored.
sigset_t HoldBackSignals() {
  sigset_t held;
  ::sigemptyset(&held);
  for (const int number : {SIGTERM, SIGINT}) {
    struct sigaction current = {};
    if (::sigaction(number, nullptr, &current) == 0 && current.sa_handler != SIG_IGN) {
      ::sigaddset(&held, number);
    }
  }
  ::pthread_sigmask(SIG_BLOCK, &held, nullptr);
  return held;
}

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
  std::unique_ptr<LocalExpertBackend> local;
  std::unique_ptr<SlowedBackend> slowed;
  std::unique_ptr<HeldUnits> units;
  std::unique_ptr<NodeService> service;
  std::unique_ptr<NodeServer> server;

  ExpertBackend& backend() {
    return slowed != nullptr ? static_cast<ExpertBackend&>(*slowed) : *local;
  }
};

absl::StatusOr<NodePlanOptions> PlanOptions(const Flags& flags) {
  NodePlanOptions options;
  options.num_threads = flags.threads > 0 ? static_cast<int>(flags.threads) : UsableCpus();
  if (flags.max_rows > 0) {
    options.max_rows = flags.max_rows;
  }
  if (!flags.budget.empty()) {
    SHOAL_ASSIGN_OR_RETURN(options.budget_bytes, ParseByteSize(flags.budget));
  }
  return options;
}

absl::Status OpenBackend(const Flags& flags, const NodePlanOptions& options, Node& node) {
  const Clock& clock = Clock::Real();
  node.pool = std::make_unique<ThreadPool>(options.num_threads);
  LocalExpertBackend::Options backend;
  backend.cache_records = node.plan.cache_records;
  SHOAL_ASSIGN_OR_RETURN(node.local,
                         LocalExpertBackend::Open(node.experts.model, node.experts.slices, backend,
                                                  *node.pool, clock));
  node.experts.model.codebooks = {};  // the backend has its own; the rest needs sizes
  SHOAL_ASSIGN_OR_RETURN(node.units,
                         HeldUnits::Open(node.experts.model.layout, node.experts.slices));
  SHOAL_RETURN_IF_ERROR(ProbeExperts(*node.local, node.experts.model, *node.units));
  if (const ExpertIoMode mode = node.local->io_mode(); !mode.direct) {
    Note(absl::StrCat("experts are read through the page cache, which is slower: ",
                      mode.why_not_direct));
  }
  if (flags.drill_delay_ms > 0) {
    node.slowed =
        std::make_unique<SlowedBackend>(*node.local, absl::Milliseconds(flags.drill_delay_ms));
  }
  return absl::OkStatus();
}

absl::Status Serve(const Flags& flags, const NetAddress& address, NodeService::Options options,
                   Node& node) {
  const Clock& clock = Clock::Real();
  // Without a port of its own the process tells the nodes of a machine apart.
  options.name = flags.name.empty() ? node.experts.name : flags.name;
  if (options.name.empty()) {
    options.name = DefaultName(address.port > 0 ? address.port : ::getpid());
  }
  options.directory = flags.directory;
  options.max_rows = node.plan.max_rows;
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
  SHOAL_ASSIGN_OR_RETURN(node.server, NodeServer::Start(*node.service, address));
  const std::string where = node.server->address().ToString();
  PrintLine(flags,
            {{"listening_on", where},
             {"name", options.name},
             {"identity", node.experts.manifest.identity},
             {"max_rows", options.max_rows},
             {"budget_bytes", node.plan.budget_bytes},
             {"cache_records", node.plan.cache_records},
             {"direct_io", node.local->io_mode().direct},
             {"read_bytes_per_second", options.read_bytes_per_second},
             {"compute_bytes_per_second", options.compute_bytes_per_second}},
            absl::StrCat("listening on ", where));
  return absl::OkStatus();
}

// Waits for a signal, then drains. The next one has its usual effect: it ends the process at once.
void ServeUntilSignal(const Flags& flags, const sigset_t& signals, Node& node) {
  int number = 0;
  ::sigwait(&signals, &number);
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  Note(
      "draining: requests in flight are finished, then the node ends; a second signal ends it now");
  if (!node.server->Drain(absl::Seconds(flags.grace_s))) {
    Note(absl::StrCat("streams were still open after ", flags.grace_s, " s and have been cut"));
  }
}

ExitCode Run(const Flags& flags) {
  const sigset_t signals = HoldBackSignals();
  const absl::StatusOr<NetAddress> address = ParseListenAddress(flags.listen);
  const absl::StatusOr<NodePlanOptions> options = PlanOptions(flags);
  for (const absl::Status& status :
       {address.status(), options.status(),
        flags.name.empty() ? absl::OkStatus() : CheckNodeName(flags.name, "--name")}) {
    if (!status.ok()) {
      return Report(flags, status, ExitCode::kUsage);
    }
  }
  if (!IsLoopback(*address) && !flags.insecure) {
    return Report(flags,
                  absl::InvalidArgumentError(absl::StrCat(
                      flags.listen, " is not loopback, and this release has no TLS: anyone who ",
                      "reaches the port can use the node. Pass --insecure to accept that")),
                  ExitCode::kUsage);
  }
  if (!IsLoopback(*address)) {
    Note(absl::StrCat("warning: ", flags.listen, " is open to anyone who reaches it: no TLS"));
  }
  Node node;
  // Said before work is done that would be for nothing.
  if (const absl::Status status = CheckCanListen(*address); !status.ok()) {
    return Report(flags, status);
  }
  absl::StatusOr<NodeExperts> experts = OpenNodeExperts(flags.directory);
  if (!experts.ok()) {
    return Report(flags, experts.status());
  }
  node.experts = *std::move(experts);
  node.plan = PlanNodeMemory(node.experts, *options);
  if (!node.plan.fits) {
    return Report(flags, absl::FailedPreconditionError(FormatBelowFloor(node.plan)),
                  ExitCode::kBudgetBelowFloor);
  }
  absl::Status status = OpenBackend(flags, *options, node);
  if (status.ok()) {
    status = Serve(flags, *address, options->service, node);
  }
  if (!status.ok()) {
    return Report(flags, status);
  }
  ServeUntilSignal(flags, signals, node);
  return ExitCode::kOk;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.set_version_flag("--version", absl::StrCat("shoal-node ", kVersion, " (container version ",
                                                 kContainerVersion, ")"));
  app.add_option("DIR", flags.directory,
                 "The partition made by `shoal shard`, or container, whose experts are served")
      ->required();
  app.add_option("--listen", flags.listen,
                 "Where to listen, IP:PORT; port 0 takes a free one (default 127.0.0.1:7071)");
  app.add_option("--name", flags.name,
                 "The node's name in a pool, 1 to 63 of a-z A-Z 0-9 . _ - (default: the "
                 "partition's, or host and port)");
  app.add_option(
      "--budget", flags.budget,
      "Most memory the process takes, like 8GiB (default: what is free, less a reserve)");
  app.add_option("--threads", flags.threads, "Threads that compute (default: all processors)")
      ->check(CLI::Range(int64_t{1}, kMostThreads));
  app.add_option("--max-rows", flags.max_rows,
                 "Most rows of a request (default: up to 512, as the budget allows)")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  app.add_option("--grace", flags.grace_s,
                 "Seconds that open streams have to end after SIGTERM (default 10)")
      ->check(CLI::Range(int64_t{0}, int64_t{3600}));
  app.add_flag("--insecure", flags.insecure, "Listen beyond loopback without TLS");
  app.add_flag("--no-measure", flags.no_measure, "Do not measure disk and kernels at start");
  app.add_flag("--json", flags.json, "Print one JSON object a line");
  CLI::Option* drill = app.add_flag("--allow-drill", flags.allow_drill,
                                    "Allow the --drill flags, which try failures");
  app.add_option("--drill-delay-ms", flags.drill_delay_ms,
                 "Wait N milliseconds before every layer is computed")
      ->check(CLI::Range(int64_t{0}, kMostDelayMs))
      ->needs(drill);
  app.footer(
      "It says `listening on HOST:PORT` once it is ready: files are verified and an expert was\n"
      "computed. SIGTERM or Ctrl-C finishes what was asked and ends it; a second one ends it at\n"
      "once.\n\n"
      "Exit codes:\n"
      "  0    ended by a signal, drained\n"
      "  1    an error that has no other number\n"
      "  2    unknown flag, or a value that is not accepted\n"
      "  3    the budget, or the memory that is free, is below what the node needs at least\n"
      "  4    data is damaged: a checksum or size differs\n\n"
      "Examples:\n"
      "  shoal-node ~/models/kimi-linear\n"
      "  shoal-node ~/models/kimi-linear --listen 192.168.1.20:7071 --insecure --budget 24GiB\n"
      "  shoal-node ~/models/kimi-linear --listen 127.0.0.1:0 --name shelf-2 --json");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Serves a share of a model's experts to Shoal coordinators.", "shoal-node");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are errors of the library, with the code 0.
    return app.exit(error) == 0 ? static_cast<int>(ExitCode::kOk)
                                : static_cast<int>(ExitCode::kUsage);
  }
  return static_cast<int>(Run(flags));
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  const int code = shoal::Main(argc, argv);
  // Everything of ours is closed. Not through static destructors: threads of gRPC may still be
  // putting away its server, and would meet them.
  std::fflush(nullptr);
  std::_Exit(code);
}

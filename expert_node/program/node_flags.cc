#include "expert_node/program/node_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/container/manifest.h"
#include "common/version.h"
#include "expert_node/program/node_report.h"

namespace shoal {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostDelayMs = 3'600'000;

void AddFlags(CLI::App& app, NodeFlags& flags) {
  app.set_version_flag("--version", absl::StrCat("shoal-node ", kVersion, " (container version ",
                                                 kContainerVersion, ")"));
  app.add_option("DIR", flags.directory,
                 "The partition made by `shoal shard`, or container, whose experts are served; "
                 "empty or missing: the node waits to be filled (`shoal fill`)")
      ->required();
  app.add_option("--listen", flags.listen,
                 "Where to listen, IP:PORT; port 0 takes a free one (default 127.0.0.1:7071)");
  app.add_option("--name", flags.name,
                 "The node's name in a pool, 1 to 63 of a-z A-Z 0-9 . _ - (default: the "
                 "partition's, or host and port; needed where DIR is empty)");
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
  app.add_option("--metrics", flags.metrics,
                 "Also answer GET http://IP:PORT/metrics, for Prometheus (default: do not)");
  app.add_option("--tls", flags.tls,
                 "Directory of this node's identity: only members of its pool get through");
  app.add_option("--join", flags.join,
                 "Invitation from `shoal cluster invite`: makes the identity in --tls's directory, "
                 "once");
  app.add_flag("--insecure", flags.insecure, "Listen beyond loopback without TLS");
  app.add_flag("--no-measure", flags.no_measure, "Do not measure disk and kernels at start");
  app.add_flag("--json", flags.json, "Print one JSON object a line");
  CLI::Option* drill = app.add_flag("--allow-drill", flags.allow_drill,
                                    "Allow drills: the --drill flags, and those that "
                                    "`shoal cluster drill` asks for");
  app.add_option("--drill-delay-ms", flags.drill_delay_ms,
                 "Wait N milliseconds before every layer is computed")
      ->check(CLI::Range(int64_t{0}, kMostDelayMs))
      ->needs(drill);
  app.add_option("--drill-read-rate", flags.drill_read_rate,
                 "Read at most so much from the disk in a second, like 50MB")
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
      "  4    data is damaged: a checksum or size differs\n"
      "  129, 130, 143  ended by SIGHUP, Ctrl-C or SIGTERM at once: while it opened its files, or "
      "the second "
      "time\n"
      "\n"
      "Examples:\n"
      "  shoal-node ~/models/kimi-linear\n"
      "  shoal-node ~/models/kimi-linear --listen 192.168.1.20:7071 --tls ~/attic --budget 24GiB\n"
      "  shoal-node ~/models/kimi-linear --listen 127.0.0.1:0 --name shelf-2 --json\n"
      "  shoal-node ~/models/kimi-linear --metrics 127.0.0.1:9101\n"
      "  shoal-node /data/attic --name attic        (empty: filled by `shoal fill`)");
}

}  // namespace

std::variant<NodeFlags, int> ParseNodeFlags(int argc, const char* const* argv) {
  NodeFlags flags;
  CLI::App app("Serves a share of a model's experts to Shoal coordinators.", "shoal-node");
  AddFlags(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are errors of the library, with the code 0.
    return static_cast<int>(app.exit(error) == 0 ? NodeExit::kOk : NodeExit::kUsage);
  }
  return flags;
}

}  // namespace shoal

#include "expert_node/program/node_flags.h"

#include <CLI/CLI.hpp>

#include "absl/strings/str_cat.h"
#include "common/container/manifest.h"
#include "common/io/profile_store.h"
#include "common/version.h"
#include "expert_node/cpu_choice.h"
#include "expert_node/kernel_choice.h"
#include "expert_node/program/node_report.h"

namespace shoal {
namespace {

constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostDelayMs = 3'600'000;
constexpr size_t kHelpColumn = 34;  // as that of `shoal`

// Values are named as in the help of `shoal`, and none may be empty: a variable that is not set in a
// script must not read like a flag left out.
CLI::Option* Named(CLI::Option* option, const std::string& value_name) {
  const auto not_empty = [](const std::string& value) {
    return value.empty() ? std::string("a value is missing") : std::string();
  };
  return option->option_text(value_name)->check(CLI::Validator(not_empty, ""));
}

void AddMainFlags(CLI::App& app, NodeFlags& flags) {
  Named(app.add_option("DIR", flags.directory,
                       "The partition made by `shoal shard`, or container, whose\n"
                       "experts are served; empty or missing: the node waits to\n"
                       "be filled (`shoal fill`). With --join it may be left out"),
        " ");
  Named(app.add_option("--listen", flags.listen,
                       "Where to listen; port 0 takes a free one (default\n127.0.0.1:7071)"),
        "IP:PORT");
  Named(app.add_option("--name", flags.name,
                       "The node's name in a pool, 1 to 63 of a-z A-Z 0-9 . _ -\n(default: the "
                       "certificate's or partition's, or host and\nport; needed where DIR is empty "
                       "and --tls absent)"),
        "NAME");
  Named(app.add_option("--budget", flags.budget,
                       "Most memory the process takes, like 8GiB (default: what\nis free, less a "
                       "reserve)"),
        "SIZE");
  Named(
      app.add_option("--threads", flags.threads, "Threads that compute (default: all processors)"),
      "N")
      ->check(CLI::Range(int64_t{1}, kMostThreads));
  Named(app.add_option("--cpus", flags.cpus, std::string(kCpusHelp)), "LIST");
  Named(app.add_option("--profile", flags.profile, std::string(kProfileHelp)), "DIR");
  Named(app.add_option("--kernels", flags.kernels, std::string(kKernelsHelp)), "NAME");
  Named(app.add_option("--max-rows", flags.max_rows,
                       "Most rows of a request (default: up to 512, as the budget\nallows)"),
        "N")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}));
  Named(app.add_option("--grace", flags.grace_s,
                       "Seconds that open streams have to end after SIGTERM\n(default 10)"),
        "N")
      ->check(CLI::Range(int64_t{0}, int64_t{3600}));
  app.add_flag("--no-measure", flags.no_measure,
               "Do not measure disk, kernels and threads at start");
  Named(app.add_option("--metrics", flags.metrics,
                       "Also answer GET http://IP:PORT/metrics, for Prometheus\n(default: do not)"),
        "IP:PORT");
}

void AddProtectionFlags(CLI::App& app, NodeFlags& flags) {
  Named(app.add_option("--tls", flags.tls,
                       "This node's identity: only members of its pool get through"),
        "DIR")
      ->group("Protection");
  Named(app.add_option("--join", flags.join,
                       "Invitation from `shoal cluster invite`: makes the identity\nin --tls's "
                       "directory, once; without DIR, and ends"),
        "CODE")
      ->group("Protection");
  app.add_flag("--insecure", flags.insecure, "Listen beyond loopback without TLS")
      ->group("Protection");
}

void AddDrillFlags(CLI::App& app, NodeFlags& flags) {
  CLI::Option* drill = app.add_flag("--allow-drill", flags.allow_drill,
                                    "Allow drills: the flags below, and `shoal cluster drill`");
  drill->group("Drills");
  Named(app.add_option("--drill-delay-ms", flags.drill_delay_ms,
                       "Wait N milliseconds before every layer is computed"),
        "N")
      ->check(CLI::Range(int64_t{0}, kMostDelayMs))
      ->needs(drill)
      ->group("Drills");
  Named(app.add_option("--drill-read-rate", flags.drill_read_rate,
                       "Read at most so much from the disk in a second, like 50MB"),
        "SIZE")
      ->needs(drill)
      ->group("Drills");
}

void AddFlags(CLI::App& app, NodeFlags& flags) {
  app.get_formatter()->column_width(kHelpColumn);
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag(
      "--version",
      absl::StrCat("shoal-node ", kVersion, " (container version ", kContainerVersion, ")"),
      "Print the version");
  AddMainFlags(app, flags);
  AddProtectionFlags(app, flags);
  AddDrillFlags(app, flags);
  app.add_flag("--json", flags.json, "Print one JSON object a line")->group("Output");
  app.footer(
      "Examples:\n"
      "  shoal-node ~/models/kimi-linear\n"
      "  shoal-node ~/models/kimi-linear --listen 127.0.0.1:0 --name shelf-2 --json\n"
      "  shoal-node /data/attic --name attic          (empty: filled by `shoal fill`)\n"
      "  shoal-node --join shoal-invite-1/... --tls ~/attic.identity\n"
      "  shoal-node ~/models/kimi-linear --listen 192.168.1.20:7071 --tls ~/attic.identity\n"
      "It says `listening on HOST:PORT` once it is ready: files are verified and an expert was\n"
      "computed. SIGTERM or Ctrl-C finishes what was asked and ends it; a second one ends it at "
      "once.\n"
      "\nExit codes:\n"
      "  0    ended by a signal, drained\n"
      "  1    an error that has no other number\n"
      "  2    unknown flag, or a value that is not accepted\n"
      "  3    the budget, or the memory that is free, is below what the node needs at least\n"
      "  4    data is damaged: a checksum or size differs\n"
      "  129, 130, 143  ended by SIGHUP, Ctrl-C or SIGTERM at once: while it opened its files, or\n"
      "       the second time");
}

}  // namespace

std::variant<NodeFlags, int> ParseNodeFlags(int argc, const char* const* argv) {
  NodeFlags flags;
  CLI::App app("Serve a share of a model's experts to coordinators", "shoal-node");
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

#include "coordinator/cli/pool_flags.h"

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/log/log_line.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "coordinator/cli/console.h"
#include "coordinator/cli/exit_code.h"
#include "expert_node/service/refusal_log.h"

namespace shoal {
namespace {

constexpr int kLinesAMinute = 60;  // about nodes, in the log

}  // namespace

absl::Status CheckNodeAddresses(std::vector<std::string>& addresses, absl::string_view what,
                                Protection protection, Console& console) {
  bool beyond = false;
  for (std::string& text : addresses) {
    const absl::StatusOr<NetAddress> address = ParseNetAddress(text);
    if (!address.ok()) {
      return UsageError(absl::StrCat(what, ": ", address.status().message()));
    }
    if (address->port == 0) {
      return UsageError(absl::StrCat(
          what, ": ", text, " has the port 0, which no program listens on; it is the one that the ",
          "node says at its start (`listening on HOST:PORT`)"));
    }
    text = address->ToString();
    beyond = beyond || !IsLoopback(*address);
  }
  if (beyond && protection == Protection::kNone) {
    return UsageError(absl::StrCat(
        what,
        " names a machine beyond this one, and connections are not protected: say --tls DIR "
        "(`shoal cluster init` makes it), or --insecure in a network that you trust"));
  }
  if (beyond && protection == Protection::kInsecure) {
    console.Note("shoal: connections to the nodes are neither encrypted nor authenticated");
  }
  return absl::OkStatus();
}

absl::StatusOr<double> AuditShare(const std::optional<std::string>& percent) {
  if (!percent) {
    return 0.0;
  }
  constexpr double kLeast = 0.1;
  constexpr double kMost = 100;
  absl::string_view number = *percent;
  double value = 0;
  if (!absl::ConsumeSuffix(&number, "%") || !absl::SimpleAtod(number, &value) ||
      !(value >= kLeast && value <= kMost)) {
    return UsageError(absl::StrCat("--audit ", *percent, ": 0.1% to 100% are accepted, like 5%"));
  }
  return value / kMost;
}

absl::StatusOr<PoolPlan> ReadPlanOf(absl::string_view flag, const std::string& path) {
  absl::StatusOr<PoolPlan> plan = ReadPlan(path);
  SHOAL_RETURN_IF_ERROR(Annotate(plan.status(), flag));
  return plan;
}

absl::StatusOr<bool> NodesAreFile(const std::string& nodes) {
  if (nodes.empty()) {
    return UsageError(
        "--nodes is empty; give addresses like 127.0.0.1:7101,127.0.0.1:7102, a plan's file, or "
        "leave the flag out to compute here");
  }
  if (std::filesystem::exists(nodes)) {
    return true;
  }
  if (nodes.find(':') == std::string::npos) {
    return UsageError(absl::StrCat("--nodes: there is no file ", nodes,
                                   ", and it is not a list of addresses like "
                                   "127.0.0.1:7101,127.0.0.1:7102"));
  }
  return false;
}

absl::Status CheckPlanAddresses(PoolPlan& plan, absl::string_view what, Protection protection,
                                Console& console) {
  std::vector<std::string> addresses;
  for (const PoolNode& node : plan.remote()) {
    addresses.push_back(node.address);
  }
  SHOAL_RETURN_IF_ERROR(CheckNodeAddresses(addresses, what, protection, console));
  auto address = addresses.begin();
  for (PoolNode& node : plan.nodes) {
    if (!node.is_coordinator()) {
      node.address = *address++;
    }
  }
  return absl::OkStatus();
}

void ProtectionFlags::Add(FlagSet& flags) {
  tls.Add(flags);
  flags.Switch("--insecure", &insecure, "Allow addresses beyond this machine without protection");
}

void PoolFlags::Add(FlagSet& flags) {
  flags.Heading("Pool");
  AddNodes(flags,
           "Compute experts on these nodes (shoal-node), like\n127.0.0.1:7101,127.0.0.1:7102, "
           "or on those of a plan");
  flags.Integer("--node-wait", &node_wait_seconds, {0, 86'400},
                absl::StrCat("Seconds to wait for a lost node that nobody stands in for\n(default ",
                             node_wait_seconds, ")"));
  flags.Switch("--pool-alone", &alone,
               "Never read experts from DIR: without it DIR stands in for nodes\nthat are lost");
  flags.Text("--audit", "N%", &audit,
             "Compute N % of the nodes' answers a second time, from DIR or on other\nnodes, and "
             "never again ask a node that was wrong (0.1% to 100%)");
}

void PoolFlags::AddNodes(FlagSet& flags, const std::string& help) {
  flags.Text("--nodes", "ADDRESS,...|FILE", &nodes, help);
  protection.Add(flags);
}

absl::StatusOr<std::optional<PoolOptions>> PoolFlags::Options(Console& console) const {
  if (!nodes) {
    if (alone || audit || (protection.any() && !listens)) {
      return UsageError(
          "--pool-alone, --audit, --tls and --insecure are about the nodes that --nodes names");
    }
    return std::nullopt;
  }
  PoolOptions options;
  SHOAL_ASSIGN_OR_RETURN(options.audit_share, AuditShare(audit));
  // What a node says may be part of a line, and how often something happens is up to it.
  auto log = std::make_shared<RefusalLog>(
      [](absl::string_view line) { WriteLogLine("shoal", {.message = line}); }, kLinesAMinute,
      Clock::Real());
  options.log = [log](absl::string_view line) { log->Note(line); };
  options.node_wait = absl::Seconds(node_wait_seconds);
  SHOAL_ASSIGN_OR_RETURN(const bool is_file, NodesAreFile(*nodes));
  if (is_file) {
    SHOAL_ASSIGN_OR_RETURN(options.plan, ReadPlanOf("--nodes", *nodes));
  } else {
    for (const absl::string_view text : absl::StrSplit(*nodes, ',')) {
      options.plan.nodes.push_back({"", std::string(text)});
    }
  }
  const std::string what = is_file ? absl::StrCat("--nodes: ", *nodes) : "--nodes";
  SHOAL_RETURN_IF_ERROR(CheckPlanAddresses(options.plan, what, protection.protection(), console));
  SHOAL_ASSIGN_OR_RETURN(options.own, protection.tls.Load(console));
  return options;
}

}  // namespace shoal

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/container/container.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/cli/progress.h"
#include "coordinator/pool/node_filler.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/units_server.h"

namespace shoal {
namespace {

// A node of the plan, and what was found there.
struct PlannedNode {
  std::string name;
  std::string address;
  std::vector<ExpertSlice> wanted;
  std::vector<ExpertSlice> held;  // of a node that was not empty, or has been filled
  bool already_filled = false;
  PartitionProgress progress;  // the last that it told
  absl::Duration time;
  std::vector<std::string> sources;
};

bool IsOnLoopback(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseNetAddress(address);
  return parsed.ok() && IsLoopback(*parsed);
}

// What nodes are told of a machine: they take numbers alone. Nothing where it has another name.
std::optional<std::string> NumericAddress(const std::string& address) {
  const absl::StatusOr<NetAddress> parsed = ParseListenAddress(address);
  return parsed.ok() ? std::optional(parsed->ToString()) : std::nullopt;
}

class FillCommand final : public Command {
 public:
  std::string name() const override { return "fill"; }
  std::string summary() const override { return "Fill a pool's empty nodes over the network"; }
  std::string examples() const override {
    return "  shoal-node /data/attic --name attic --listen 127.0.0.1:7101 &\n"
           "  shoal fill ~/models/kimi-linear --plan pool.json\n"
           "  shoal fill ~/models/kimi-linear --plan pool.json --from 10.0.0.2:7071 --insecure\n"
           "Interrupted or killed, the same command goes on where it stopped.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Container made by `shoal convert`");
    flags.Text("--plan", "FILE", &plan_file_, "Plan of the pool, made by `shoal plan --out FILE`");
    flags.Text(
        "--from", "ADDRESS,...", &from_,
        "Who the nodes fetch units from, the first that has them\n(default: the plan's nodes "
        "that hold some, then DIR)");
    flags.Text(
        "--listen", "IP:PORT", &listen_,
        "Where DIR is lent to the nodes meanwhile (default 127.0.0.1:0);\nfor nodes on other "
        "machines an address of this one");
    flags.Text("--node", "NAME", &only_node_, "Only this node");
    flags.Switch("--insecure", &insecure_,
                 "Allow addresses beyond this machine without protection");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_RETURN_IF_ERROR(CheckFlags(console));
    SHOAL_ASSIGN_OR_RETURN(const PoolPlan plan, ReadPlanOf("--plan", *plan_file_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, container->manifest()));
    SHOAL_RETURN_IF_ERROR(TakeNodes(plan, console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const absl::Time start = Clock::Real().Now();
    const absl::Status status = FillAll(*container, *interrupt, console);
    if (absl::IsCancelled(status)) {
      return absl::CancelledError(
          "interrupted; the nodes keep what is finished, and the same command goes on from there");
    }
    SHOAL_RETURN_IF_ERROR(status);
    const absl::Duration time = Clock::Real().Now() - start;
    console.json() ? PrintJson(plan, time, console) : PrintText(time, console);
    return ExitCode::kOk;
  }

 private:
  absl::Status CheckFlags(Console& console) {
    if (!plan_file_) {
      return UsageError("--plan FILE is missing; `shoal fill --help` has examples");
    }
    if (from_ && listen_) {
      return UsageError("--listen is about lending DIR, which is not done with --from");
    }
    if (from_) {
      from_addresses_ = absl::StrSplit(*from_, ',');
      SHOAL_RETURN_IF_ERROR(CheckNodeAddresses(from_addresses_, "--from", insecure_, console));
      for (std::string& address : from_addresses_) {
        const std::optional<std::string> numeric = NumericAddress(address);
        if (!numeric) {
          return UsageError(absl::StrCat("--from: ", address, ": the nodes take IP:PORT alone"));
        }
        address = *numeric;
      }
    }
    const absl::StatusOr<NetAddress> listen = ParseListenAddress(listen_.value_or("127.0.0.1:0"));
    if (!listen.ok()) {
      return UsageError(absl::StrCat("--listen: ", listen.status().message()));
    }
    listen_address_ = *listen;
    if (listen->host == "0.0.0.0" || listen->host == "::") {
      return UsageError("--listen: name the address by which the nodes reach this machine");
    }
    if (!IsLoopback(*listen) && !insecure_) {
      return UsageError(absl::StrCat("--listen: ", *listen_,
                                     " is not loopback, and there is no encryption yet: in a "
                                     "network that you trust, say --insecure"));
    }
    return absl::OkStatus();
  }

  absl::Status TakeNodes(const PoolPlan& plan, Console& console) {
    std::vector<std::string> addresses;
    const std::vector<PoolNode> planned = plan.remote();  // the coordinator has everything
    for (const PoolNode& node : planned) {
      if (node.address.empty()) {
        return UsageError(
            absl::StrCat("--plan: node ", node.name, " has no address in ", *plan_file_));
      }
      addresses.push_back(node.address);
    }
    SHOAL_RETURN_IF_ERROR(
        CheckNodeAddresses(addresses, absl::StrCat("--plan: ", *plan_file_), insecure_, console));
    bool found = !only_node_.has_value();
    for (size_t i = 0; i < addresses.size(); ++i) {
      PlannedNode& node = nodes_.emplace_back();
      node.name = planned[i].name;
      node.address = addresses[i];
      node.wanted = planned[i].stored();
      found = found || node.name == *only_node_;
    }
    return found ? absl::OkStatus()
                 : UsageError(absl::StrCat("--node: the plan has no node named ", *only_node_));
  }

  bool IsWanted(const PlannedNode& node) const { return !only_node_ || node.name == *only_node_; }

  absl::Status FillAll(const Container& container, const Interrupt& interrupt, Console& console) {
    std::vector<PlannedNode*> empty;
    for (PlannedNode& node : nodes_) {
      SHOAL_ASSIGN_OR_RETURN(const bool is_empty, Look(container.manifest(), node, console));
      if (is_empty && IsWanted(node)) {
        empty.push_back(&node);
      }
    }
    std::unique_ptr<UnitsServer> lender;
    if (!empty.empty() && !from_) {
      SHOAL_ASSIGN_OR_RETURN(lender, UnitsServer::Start(container, {}, listen_address_));
    }
    for (PlannedNode* node : empty) {
      SHOAL_RETURN_IF_ERROR(ChooseSources(lender.get(), *node));
      SHOAL_RETURN_IF_ERROR(FillOne(container, interrupt, *node, console));
    }
    return absl::OkStatus();
  }

  // Whether the node is there and empty. An error where it holds something else than the plan gives
  // it, or is not there and is to be filled.
  absl::StatusOr<bool> Look(const Manifest& manifest, PlannedNode& node, Console& console) const {
    const absl::StatusOr<NodeHoldings> said = AskHoldings(manifest, node.address);
    if (!IsWanted(node)) {
      node.held = said.ok() ? said->slices : std::vector<ExpertSlice>();
      return false;
    }
    if (node.wanted.empty()) {
      console.Note(absl::StrCat("shoal: the plan gives node ", node.name, " nothing to hold"));
      return false;
    }
    SHOAL_RETURN_IF_ERROR(said.status());
    if (said->name != node.name) {
      return absl::FailedPreconditionError(absl::StrCat("node at ", node.address,
                                                        ": it calls itself ", said->name,
                                                        ", and the plan calls it ", node.name));
    }
    if (said->empty) {
      return true;
    }
    for (const ExpertSlice& slice : node.wanted) {
      if (const auto missing = Uncovered(slice, said->slices); !missing.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "node ", node.name, " at ", node.address, " is not empty and lacks ",
            FormatSlice(missing.front()), ", which the plan gives it: start it on another DIR"));
      }
    }
    node.held = said->slices;
    node.already_filled = true;
    return false;
  }

  // Other nodes that hold something, and DIR; or those of --from. Loopback is no use to a node on
  // another machine.
  absl::Status ChooseSources(const UnitsServer* lender, PlannedNode& node) const {
    constexpr size_t kMostSources = 64;
    node.sources = from_addresses_;
    if (lender != nullptr) {
      const bool near = IsOnLoopback(node.address);
      for (const PlannedNode& other : nodes_) {
        const std::optional<std::string> address = NumericAddress(other.address);
        if (address && !other.held.empty() && (near || !IsOnLoopback(*address)) &&
            node.sources.size() + 1 < kMostSources) {
          node.sources.push_back(*address);
        }
      }
      if (near || !IsLoopback(lender->address())) {
        node.sources.push_back(lender->address().ToString());
      }
    }
    return !node.sources.empty()
               ? absl::OkStatus()
               : UsageError(absl::StrCat(
                     "node ", node.name, " is on another machine and nobody holds units that it ",
                     "could reach: say --listen with an address of this machine"));
  }

  absl::Status FillOne(const Container& container, const Interrupt& interrupt, PlannedNode& node,
                       Console& console) {
    const Clock& clock = Clock::Real();
    const absl::Time start = clock.Now();
    ProgressLine line(clock, console.error_is_terminal(),
                      [&console](absl::string_view text) { console.NoteRaw(text); });
    SHOAL_RETURN_IF_ERROR(FillNode(
        container, {node.address, node.name, node.wanted, node.sources},
        [&](const PartitionProgress& progress) {
          node.progress = progress;
          line.Update({.step = progress.step,
                       .bytes_done = progress.bytes_done,
                       .bytes_total = progress.bytes_total,
                       .bytes_skipped = progress.bytes_kept});
        },
        interrupt.token()));
    node.held = node.wanted;
    node.time = clock.Now() - start;
    return absl::OkStatus();
  }

  void PrintText(absl::Duration time, Console& console) const {
    std::string text;
    for (const PlannedNode& node : nodes_) {
      if (!IsWanted(node) || node.wanted.empty()) {
        continue;
      }
      absl::StrAppend(&text, node.name, " at ", node.address, ": ");
      if (node.already_filled) {
        text += "filled already\n";
        continue;
      }
      absl::StrAppendFormat(&text, "%s in %.1f s", FormatByteSize(node.progress.bytes_total),
                            absl::ToDoubleSeconds(node.time));
      if (node.progress.bytes_kept > 0) {
        absl::StrAppend(&text, ", ", FormatByteSize(node.progress.bytes_kept),
                        " of it kept from before");
      }
      text += "\n";
    }
    absl::StrAppendFormat(&text, "done in %.1f s\n", absl::ToDoubleSeconds(time));
    console.Print(text);
  }

  void PrintJson(const PoolPlan& plan, absl::Duration time, Console& console) const {
    Json json;
    json["identity"] = plan.identity;
    json["epoch"] = plan.epoch;
    json["seconds"] = absl::ToDoubleSeconds(time);
    json["nodes"] = Json::array();
    for (const PlannedNode& node : nodes_) {
      if (!IsWanted(node) || node.wanted.empty()) {
        continue;
      }
      json["nodes"].push_back({{"name", node.name},
                               {"address", node.address},
                               {"already_filled", node.already_filled},
                               {"bank_bytes", node.progress.bytes_total},
                               {"bytes_kept", node.progress.bytes_kept},
                               {"seconds", absl::ToDoubleSeconds(node.time)},
                               {"sources", node.sources},
                               {"slices", Json(SlicesToJson(node.wanted))}});
    }
    console.PrintJson(json);
  }

  std::string directory_;
  std::optional<std::string> plan_file_;
  std::optional<std::string> from_;
  std::optional<std::string> listen_;
  std::optional<std::string> only_node_;
  bool insecure_ = false;

  std::vector<std::string> from_addresses_;
  NetAddress listen_address_;
  std::vector<PlannedNode> nodes_;
};

}  // namespace

std::unique_ptr<Command> MakeFillCommand() { return std::make_unique<FillCommand>(); }

}  // namespace shoal

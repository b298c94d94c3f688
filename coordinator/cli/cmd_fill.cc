#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/container/container.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/fill_report.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/pool/pool_filler.h"
#include "coordinator/pool/pool_plan.h"
#include "expert_node/service/listen_address.h"
#include "expert_node/service/units_server.h"

namespace shoal {
namespace {

class FillCommand final : public Command {
 public:
  std::string name() const override { return "fill"; }
  std::string summary() const override { return "Fill a pool's empty nodes over the network"; }
  std::string examples() const override {
    return "  shoal-node /data/attic --name attic --listen 127.0.0.1:7101 &\n"
           "  shoal fill ~/models/kimi-linear --plan pool.json\n"
           "  shoal fill ~/models/kimi-linear --plan pool.json --from 10.0.0.2:7071 --tls "
           "~/pool/coordinator\n"
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
    protection_.Add(flags);
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_RETURN_IF_ERROR(CheckFlags(console));
    SHOAL_ASSIGN_OR_RETURN(PoolPlan plan, ReadPlanOf("--plan", *plan_file_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    SHOAL_RETURN_IF_ERROR(CheckPlan(plan, container->manifest()));
    SHOAL_RETURN_IF_ERROR(CheckPlannedNodes(plan, console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const absl::Time start = Clock::Real().Now();
    SHOAL_ASSIGN_OR_RETURN(const SecurityPtr own, protection_.tls.Load(console));
    SHOAL_ASSIGN_OR_RETURN(std::vector<FillingNode> nodes,
                           LookAtNodes(container->manifest(), plan, only_node_, own));
    const absl::Status status = Fill(*container, own, nodes, interrupt->token(), console);
    if (absl::IsCancelled(status)) {
      return absl::CancelledError(
          "interrupted; the nodes keep what is finished, and the same command goes on from there");
    }
    SHOAL_RETURN_IF_ERROR(status);
    const double seconds = absl::ToDoubleSeconds(Clock::Real().Now() - start);
    if (console.json()) {
      console.PrintJson({{"identity", plan.identity},
                         {"epoch", plan.epoch},
                         {"seconds", seconds},
                         {"nodes", FilledJson(nodes)}});
    } else {
      console.Print(
          absl::StrCat(FormatFilled(nodes), absl::StrFormat("done in %.1f s\n", seconds)));
    }
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
      SHOAL_RETURN_IF_ERROR(
          CheckNodeAddresses(from_addresses_, "--from", protection_.protection(), console));
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
    return CheckMayListen(*listen, protection_.tls.directory.has_value(), protection_.insecure,
                          console);
  }

  absl::Status CheckPlannedNodes(PoolPlan& plan, Console& console) const {
    bool found = !only_node_.has_value();
    for (const PoolNode& node : plan.remote()) {
      if (node.address.empty()) {
        return UsageError(
            absl::StrCat("--plan: node ", node.name, " has no address in ", *plan_file_));
      }
      found = found || node.name == *only_node_;
    }
    SHOAL_RETURN_IF_ERROR(CheckPlanAddresses(plan, absl::StrCat("--plan: ", *plan_file_),
                                             protection_.protection(), console));
    return found ? absl::OkStatus()
                 : UsageError(absl::StrCat("--node: the plan has no node named ", *only_node_));
  }

  absl::Status Fill(const Container& container, const SecurityPtr& own,
                    std::span<FillingNode> nodes, const std::stop_token& stop,
                    Console& console) const {
    if (std::none_of(nodes.begin(), nodes.end(), [](const auto& node) { return node.is_empty; })) {
      return absl::OkStatus();
    }
    std::unique_ptr<UnitsServer> lender;
    // Sources that are named are coordinators or nodes, which both lend to as few as a coordinator.
    int at_once = kLentAtOnce;
    if (!from_) {
      UnitsService::Options options;
      options.own = own;
      at_once = options.max_copies;
      ServerSecurity security;
      security.own = own;
      security.log = [&console](absl::string_view line) {
        console.Note(absl::StrCat("shoal: ", line));
      };
      SHOAL_ASSIGN_OR_RETURN(lender,
                             UnitsServer::Start(container, options, listen_address_, security));
    }
    const std::optional<std::string> without = ChooseSources(
        from_addresses_, lender == nullptr ? "" : lender->address().ToString(), nodes);
    if (without) {
      return UsageError(
          absl::StrCat("node ", *without,
                       " is on another machine and nobody holds units that it could reach: "
                       "say --listen with an address of this machine"));
    }
    return FillWithProgress(LentModelOf(container), nodes, at_once, stop, console);
  }

  std::string directory_;
  std::optional<std::string> plan_file_;
  std::optional<std::string> from_;
  std::optional<std::string> listen_;
  std::optional<std::string> only_node_;
  ProtectionFlags protection_;

  std::vector<std::string> from_addresses_;
  NetAddress listen_address_;
};

}  // namespace

std::unique_ptr<Command> MakeFillCommand() { return std::make_unique<FillCommand>(); }

}  // namespace shoal

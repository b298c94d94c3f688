#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/container/container.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/exit_code.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/pool_flags.h"
#include "coordinator/pool/link_probe.h"

namespace shoal {
namespace {

constexpr double kMega = 1e6;

std::string FormatRate(const std::optional<double>& bytes_per_second) {
  return bytes_per_second ? absl::StrFormat("%.0f MB/s", *bytes_per_second / kMega) : "-";
}

Json RateJson(const std::optional<double>& bytes_per_second) {
  return bytes_per_second ? Json(*bytes_per_second) : Json(nullptr);
}

class BenchLinkCommand final : public Command {
 public:
  std::string name() const override { return "bench link"; }
  std::string summary() const override { return "Measure the links to a pool's nodes"; }
  std::string examples() const override {
    return "  shoal bench link ~/models/kimi-linear --nodes 192.168.1.20:7071 --tls "
           "~/pool/coordinator\n"
           "  shoal bench link ~/models/kimi-linear --nodes pool.json --json\n"
           "A round trip is a request for one row and its reply, less the time for which the node\n"
           "says that it queued and computed. Nodes are measured one after the other.";
  }

  void AddFlags(FlagSet& flags) override {
    flags.RequiredArgument("DIR", &directory_, "Container that the nodes serve");
    flags.Heading("Nodes");
    nodes_.AddNodes(flags, "Addresses of nodes, or a plan that has them");
    flags.Heading("Measurement");
    flags.Integer("--round-trips", &round_trips_, {1, 1'000'000},
                  absl::StrCat("Requests of one row (default ", round_trips_, ")"));
    flags.Integer("--batches", &batches_, {1, 10'000},
                  absl::StrCat("Large batches, each way (default ", batches_, ")"));
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::optional<PoolOptions> pool, nodes_.Options(console));
    if (!pool) {
      return UsageError("--nodes ADDRESS,...|FILE is missing");
    }
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Container> container, Container::Open(directory_));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    LinkProbeOptions options;
    options.round_trips = round_trips_;
    options.batches = batches_;
    std::vector<LinkMeasurement> links;
    const std::vector<PoolNode> nodes = pool->plan.remote();
    links.reserve(nodes.size());
    for (const PoolNode& node : nodes) {
      options.security = {pool->own, ChannelSecurity::Peer::kNode, node.name};
      SHOAL_ASSIGN_OR_RETURN(LinkMeasurement link,
                             MeasureLink(container->manifest(), node.address, options,
                                         Clock::Real(), interrupt->token()));
      links.push_back(std::move(link));
    }
    if (console.json()) {
      console.PrintJson(LinksJson(links));
    } else {
      console.Print(FormatLinks(links));
    }
    return ExitCode::kOk;
  }

 private:
  static std::string FormatLinks(const std::vector<LinkMeasurement>& links) {
    size_t name_width = 4;
    size_t address_width = 7;
    for (const LinkMeasurement& link : links) {
      name_width = std::max(name_width, link.name.size());
      address_width = std::max(address_width, link.address.size());
    }
    std::string text =
        absl::StrFormat("%-*s  %-*s  %14s  %14s  %12s  %12s\n", name_width, "node", address_width,
                        "address", "round trip p50", "p95", "to the node", "from it");
    for (const LinkMeasurement& link : links) {
      absl::StrAppendFormat(
          &text, "%-*s  %-*s  %11.3f ms  %11.3f ms  %12s  %12s\n", name_width, link.name,
          address_width, link.address, absl::ToDoubleMilliseconds(link.round_trip_p50),
          absl::ToDoubleMilliseconds(link.round_trip_p95), FormatRate(link.send_bytes_per_second),
          FormatRate(link.receive_bytes_per_second));
    }
    return text;
  }

  static Json LinksJson(const std::vector<LinkMeasurement>& links) {
    Json json;
    json["nodes"] = Json::array();
    for (const LinkMeasurement& link : links) {
      json["nodes"].push_back(
          {{"name", link.name},
           {"address", link.address},
           {"round_trips", link.round_trips},
           {"round_trip_p50_ms", absl::ToDoubleMilliseconds(link.round_trip_p50)},
           {"round_trip_p95_ms", absl::ToDoubleMilliseconds(link.round_trip_p95)},
           {"batch_rows", link.batch_rows},
           {"sent_bytes", link.sent_bytes},
           {"received_bytes", link.received_bytes},
           {"send_bytes_per_second", RateJson(link.send_bytes_per_second)},
           {"receive_bytes_per_second", RateJson(link.receive_bytes_per_second)}});
    }
    return json;
  }

  std::string directory_;
  PoolFlags nodes_;
  int64_t round_trips_ = LinkProbeOptions().round_trips;
  int64_t batches_ = LinkProbeOptions().batches;
};

}  // namespace

std::unique_ptr<Command> MakeBenchLinkCommand() { return std::make_unique<BenchLinkCommand>(); }

}  // namespace shoal

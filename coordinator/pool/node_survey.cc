#include "coordinator/pool/node_survey.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "expert_node/service/node_client.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// Odd, so that there is a middle one. The first call, which also connects, is not among them.
constexpr size_t kRoundTrips = 9;
constexpr uint64_t kMessageBytes = uint64_t{4} << 20;

absl::StatusOr<NodeRates> RatesOf(const v1::DescribeReply& reply, const Manifest& manifest) {
  NodeRates rates;
  SHOAL_ASSIGN_OR_RETURN(rates.holds, HoldingsOf(reply, manifest.whole_experts()));
  rates.name = reply.name();
  if (reply.has_terms()) {
    SHOAL_RETURN_IF_ERROR(CheckTerms(MakeTerms(manifest), reply.terms(), kSeenByCoordinator));
    if (reply.max_rows() == 0) {
      return absl::FailedPreconditionError(
          "it is a coordinator (`shoal serve` or `shoal fill`), which computes for nobody; a pool "
          "is planned of shoal-node's addresses");
    }
  }
  // An empty node has nothing that its kernels could apply.
  rates.compute_assumed = !reply.has_terms() && reply.compute_bytes_per_second() == 0;
  if (reply.read_bytes_per_second() == 0 ||
      (reply.compute_bytes_per_second() == 0 && !rates.compute_assumed)) {
    return absl::FailedPreconditionError(
        absl::StrCat(reply.read_bytes_per_second() == 0 ? "read" : "compute",
                     "_bytes_per_second is not measured; start it without --no-measure"));
  }
  rates.read_bytes_per_second = static_cast<double>(reply.read_bytes_per_second());
  rates.compute_bytes_per_second = static_cast<double>(reply.compute_bytes_per_second());
  rates.free_disk_bytes = reply.free_disk_bytes();
  return rates;
}

absl::StatusOr<NodeRates> Survey(const std::string& address, const Manifest& manifest,
                                 const SecurityPtr& own, const Clock& clock) {
  NodeClient client(address, kMessageBytes, {own, ChannelSecurity::Peer::kLender, ""});
  SHOAL_ASSIGN_OR_RETURN(const v1::DescribeReply reply, client.Describe());
  SHOAL_ASSIGN_OR_RETURN(NodeRates rates, RatesOf(reply, manifest));
  std::vector<absl::Duration> round_trips;
  while (round_trips.size() < kRoundTrips) {
    const absl::Time start = clock.Now();
    SHOAL_RETURN_IF_ERROR(client.Describe().status());
    round_trips.push_back(clock.Now() - start);
  }
  std::sort(round_trips.begin(), round_trips.end());
  rates.round_trip = round_trips[kRoundTrips / 2];
  rates.address = address;
  return rates;
}

// Gives nodes whose kernels were not measured a rate to plan with.
void AssumeComputeRates(std::vector<NodeRates>& nodes) {
  double slowest = 0;
  for (const NodeRates& node : nodes) {
    if (!node.compute_assumed) {
      slowest = slowest == 0 ? node.compute_bytes_per_second
                             : std::min(slowest, node.compute_bytes_per_second);
    }
  }
  for (NodeRates& node : nodes) {
    if (node.compute_assumed) {
      node.compute_bytes_per_second = slowest > 0 ? slowest : node.read_bytes_per_second;
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<NodeRates>> SurveyNodes(const Manifest& manifest,
                                                   const std::vector<std::string>& addresses,
                                                   const SecurityPtr& own, const Clock& clock) {
  std::vector<NodeRates> nodes;
  for (const std::string& address : addresses) {
    absl::StatusOr<NodeRates> rates = Survey(address, manifest, own, clock);
    SHOAL_RETURN_IF_ERROR(Annotate(rates.status(), absl::StrCat("node at ", address)));
    nodes.push_back(*std::move(rates));
  }
  AssumeComputeRates(nodes);
  return nodes;
}

}  // namespace shoal

#include "coordinator/pool/node_survey.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "expert_node/service/grpc_status.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.grpc.pb.h"

namespace shoal {
namespace {

constexpr std::chrono::seconds kAnswerWithin(5);
// Odd, so that there is a middle one. The first call, which also connects, is not among them.
constexpr size_t kRoundTrips = 9;

absl::StatusOr<v1::DescribeReply> Describe(v1::ExpertNode::Stub& stub) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerWithin);
  v1::DescribeReply reply;
  const grpc::Status status = stub.Describe(&context, v1::DescribeRequest(), &reply);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(
        absl::StrCat("no answer within ", kAnswerWithin.count(), " seconds"));
  }
  SHOAL_RETURN_IF_ERROR(FromGrpcStatus(status));
  return reply;
}

absl::StatusOr<NodeRates> RatesOf(const v1::DescribeReply& reply, const Manifest& manifest) {
  NodeRates rates;
  SHOAL_ASSIGN_OR_RETURN(rates.holds, HoldingsOf(reply, manifest.whole_experts()));
  rates.name = reply.name();
  if (reply.has_terms()) {
    SHOAL_RETURN_IF_ERROR(CheckTerms(MakeTerms(manifest), reply.terms()));
  }
  if (reply.read_bytes_per_second() == 0 || reply.compute_bytes_per_second() == 0) {
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
                                 const Clock& clock) {
  const auto stub =
      v1::ExpertNode::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  SHOAL_ASSIGN_OR_RETURN(const v1::DescribeReply reply, Describe(*stub));
  SHOAL_ASSIGN_OR_RETURN(NodeRates rates, RatesOf(reply, manifest));
  std::vector<absl::Duration> round_trips;
  while (round_trips.size() < kRoundTrips) {
    const absl::Time start = clock.Now();
    SHOAL_RETURN_IF_ERROR(Describe(*stub).status());
    round_trips.push_back(clock.Now() - start);
  }
  std::sort(round_trips.begin(), round_trips.end());
  rates.round_trip = round_trips[kRoundTrips / 2];
  rates.address = address;
  return rates;
}

}  // namespace

absl::StatusOr<std::vector<NodeRates>> SurveyNodes(const Manifest& manifest,
                                                   const std::vector<std::string>& addresses,
                                                   const Clock& clock) {
  std::vector<NodeRates> nodes;
  for (const std::string& address : addresses) {
    absl::StatusOr<NodeRates> rates = Survey(address, manifest, clock);
    SHOAL_RETURN_IF_ERROR(Annotate(rates.status(), absl::StrCat("node at ", address)));
    nodes.push_back(*std::move(rates));
  }
  return nodes;
}

}  // namespace shoal

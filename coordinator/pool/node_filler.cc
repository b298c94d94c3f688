#include "coordinator/pool/node_filler.h"

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/container/directory_files.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/clock.h"
#include "common/sync/stop_wait.h"
#include "expert_node/service/fetch_grant.h"
#include "expert_node/service/node_client.h"
#include "expert_node/service/slice_message.h"
#include "expert_node/service/terms.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// Of what a node says of itself and of its progress.
constexpr uint64_t kMessageBytes = uint64_t{4} << 20;
constexpr size_t kMostStepBytes = 100;
// One call's copies. The same call again has a new grant.
constexpr absl::Duration kGrantedFor = absl::Hours(48);
constexpr absl::Duration kServesWithin = absl::Minutes(2);
constexpr absl::Duration kLookAgainAfter = absl::Milliseconds(100);

absl::StatusOr<NodeHoldings> Ask(NodeClient& client, const Manifest& manifest) {
  SHOAL_ASSIGN_OR_RETURN(const v1::DescribeReply reply, client.Describe());
  NodeHoldings holdings;
  holdings.name = reply.name();
  holdings.empty = !reply.has_terms();
  if (reply.has_terms()) {
    SHOAL_RETURN_IF_ERROR(CheckTerms(MakeTerms(manifest), reply.terms(), kSeenByCoordinator));
  }
  SHOAL_ASSIGN_OR_RETURN(holdings.slices, HoldingsOf(reply, manifest.whole_experts()));
  return holdings;
}

absl::StatusOr<LentModel> FetchLentModel(const std::string& address, const SecurityPtr& own,
                                         const std::stop_token& stop) {
  NodeClient client(address, kMessageBytes, {own, ChannelSecurity::Peer::kLender, ""});
  SHOAL_ASSIGN_OR_RETURN(const v1::DescribeReply reply, client.Describe(stop));
  if (!reply.has_terms()) {
    return absl::FailedPreconditionError("it is an empty node and knows no model");
  }
  v1::FetchModelRequest request;
  *request.mutable_terms() = reply.terms();
  request.set_file(v1::MODEL_FILE_MANIFEST);
  SHOAL_ASSIGN_OR_RETURN(const std::string text,
                         client.FetchModel(request, kMaxManifestBytes, stop));
  request.set_file(v1::MODEL_FILE_CONFIG);
  SHOAL_ASSIGN_OR_RETURN(const std::string config,
                         client.FetchModel(request, kMaxConfigBytes, stop));
  LentModel model;
  SHOAL_ASSIGN_OR_RETURN(model.manifest, ParseManifest(text, config, kManifestFile));
  SHOAL_RETURN_IF_ERROR(
      CheckTerms(MakeTerms(model.manifest), reply.terms(), {"its manifest", "the node"}));
  model.manifest_sha256 = ToHex(Sha256::Of(text));
  return model;
}

absl::StatusOr<v1::FillRequest> RequestOf(const LentModel& model, const FillTask& task) {
  v1::FillRequest request;
  *request.mutable_terms() = MakeTerms(model.manifest);
  request.set_name(task.name);
  for (const ExpertSlice& slice : task.slices) {
    ToMessage(slice, request.add_slices());
  }
  for (const std::string& source : task.sources) {
    request.add_sources(source);
  }
  request.set_manifest_sha256(model.manifest_sha256);
  if (task.own != nullptr) {
    SHOAL_ASSIGN_OR_RETURN(*request.mutable_grant(),
                           MakeFetchGrant(*task.own, task.name, model.manifest.identity,
                                          task.slices, absl::Now() + kGrantedFor));
  }
  return request;
}

ChannelSecurity WayTo(const FillTask& task) {
  return {task.own, ChannelSecurity::Peer::kNode, task.name};
}

// A node that has been filled closes its port for a moment, opens its partition, and serves.
absl::Status WaitUntilServed(const LentModel& model, const FillTask& task,
                             const std::stop_token& stop) {
  const Clock& clock = Clock::Real();
  const absl::Time end = clock.Now() + kServesWithin;
  absl::Status last;
  while (clock.Now() < end) {
    // Each time a connection of its own: while one that failed is tried again, calls fail at once, so
    // that nobody drives it on, and a TLS handshake takes several steps.
    NodeClient client(task.address, kMessageBytes, WayTo(task));
    const absl::StatusOr<NodeHoldings> holdings = Ask(client, model.manifest);
    last = holdings.status();
    if (holdings.ok() && !holdings->empty) {
      for (const ExpertSlice& slice : task.slices) {
        SHOAL_RETURN_IF_ERROR(CheckHolds(holdings->slices, slice));
      }
      return absl::OkStatus();
    }
    SHOAL_RETURN_IF_ERROR(WaitUnlessStopped(kLookAgainAfter, stop));
  }
  return absl::UnavailableError(
      absl::StrCat("it was filled and does not serve: its own messages say why (",
                   last.ok() ? "it answers that it is empty" : std::string(last.message()), ")"));
}

absl::Status Fill(const LentModel& model, const FillTask& task,
                  const OnPartitionProgress& on_progress, const std::stop_token& stop) {
  NodeClient client(task.address, kMessageBytes, WayTo(task));
  SHOAL_ASSIGN_OR_RETURN(const v1::FillRequest request, RequestOf(model, task));
  SHOAL_RETURN_IF_ERROR(client.Fill(
      request,
      [&on_progress](const v1::FillProgress& progress) {
        if (on_progress) {
          // It goes to a terminal, and whatever the node likes can be in it.
          on_progress({absl::CHexEscape(progress.step().substr(0, kMostStepBytes)),
                       progress.bytes_done(), progress.bytes_total(), progress.bytes_kept()});
        }
      },
      stop));
  return WaitUntilServed(model, task, stop);
}

}  // namespace

LentModel LentModelOf(const Container& container) {
  return {container.manifest(), container.manifest_sha256()};
}

absl::StatusOr<LentModel> AskModel(const std::string& address, const SecurityPtr& own,
                                   const std::stop_token& stop) {
  absl::StatusOr<LentModel> model = FetchLentModel(address, own, stop);
  SHOAL_RETURN_IF_ERROR(Annotate(model.status(), address));
  return model;
}

absl::StatusOr<NodeHoldings> AskHoldings(const Manifest& manifest, const std::string& address,
                                         const SecurityPtr& own, const std::string& name) {
  NodeClient client(address, kMessageBytes, {own, ChannelSecurity::Peer::kNode, name});
  absl::StatusOr<NodeHoldings> holdings = Ask(client, manifest);
  SHOAL_RETURN_IF_ERROR(Annotate(holdings.status(), absl::StrCat("node at ", address)));
  return holdings;
}

absl::Status FillNode(const LentModel& model, const FillTask& task,
                      const OnPartitionProgress& on_progress, const std::stop_token& stop) {
  return Annotate(Fill(model, task, on_progress, stop),
                  absl::StrCat("node ", task.name, " at ", task.address));
}

}  // namespace shoal

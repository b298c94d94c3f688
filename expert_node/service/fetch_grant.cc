#include "expert_node/service/fetch_grant.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/status/status_macros.h"
#include "common/tls/signature.h"
#include "expert_node/service/slice_message.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {
namespace {

// So that a signature made for this is good for nothing else.
constexpr absl::string_view kPurpose = "shoal fetch grant 1\n";
// 256 slices, a certificate, and room.
constexpr size_t kMostBytes = size_t{32} << 10;

absl::Status Denied(absl::string_view why) {
  return absl::PermissionDeniedError(
      absl::StrCat("these units are not for this node: ", why,
                   "; only a coordinator has a node copy (`shoal fill`)"));
}

// The grant's content, once it is known that a coordinator signed it.
absl::StatusOr<v1::FetchGrantContent> Open(const TransportSecurity& own, absl::string_view grant) {
  v1::FetchGrant message;
  v1::FetchGrantContent content;
  if (grant.empty() || grant.size() > kMostBytes ||
      !message.ParseFromArray(grant.data(), static_cast<int>(grant.size()))) {
    return Denied("there is no grant with the request");
  }
  const absl::StatusOr<Certificate> signer = own.Verify(message.certificate(), TlsSide::kClient);
  if (!signer.ok()) {
    return Denied(signer.status().message());
  }
  if (signer->role != TlsRole::kCoordinator) {
    return Denied(absl::StrCat(signer->Who(), " signed the grant, not a coordinator"));
  }
  const absl::Status signature = CheckSignature(
      message.certificate(), absl::StrCat(kPurpose, message.content()), message.signature());
  if (!signature.ok() || !content.ParseFromString(message.content()) ||
      content.slices_size() > static_cast<int>(kMaxSlices)) {
    return Denied("the grant is not what its coordinator signed");
  }
  return content;
}

}  // namespace

absl::StatusOr<std::string> MakeFetchGrant(const TransportSecurity& own, const std::string& node,
                                           const std::string& container_identity,
                                           std::span<const ExpertSlice> slices,
                                           absl::Time expires) {
  v1::FetchGrantContent content;
  content.set_node(node);
  content.set_identity(container_identity);
  for (const ExpertSlice& slice : slices) {
    ToMessage(slice, content.add_slices());
  }
  content.set_expires_unix_s(static_cast<uint64_t>(absl::ToUnixSeconds(expires)));
  v1::FetchGrant grant;
  grant.set_content(content.SerializeAsString());
  SHOAL_ASSIGN_OR_RETURN(*grant.mutable_signature(),
                         Sign(own.identity().key_pem, absl::StrCat(kPurpose, grant.content())));
  grant.set_certificate(own.identity().certificate_pem);
  return grant.SerializeAsString();
}

absl::Status CheckMayFetch(const TransportSecurity& own, absl::string_view peer_pem,
                           absl::string_view grant, const std::string& container_identity,
                           const ExpertSlice& slice, absl::Time now) {
  const absl::StatusOr<Certificate> peer = own.Verify(peer_pem, TlsSide::kClient);
  if (!peer.ok()) {
    return Denied(peer.status().message());
  }
  if (peer->role == TlsRole::kCoordinator) {
    return absl::OkStatus();
  }
  SHOAL_ASSIGN_OR_RETURN(const v1::FetchGrantContent content, Open(own, grant));
  if (peer->role != TlsRole::kNode || content.node() != peer->name) {
    return Denied(absl::StrCat("the grant is not for ", peer->Who()));
  }
  if (content.identity() != container_identity) {
    return Denied("the grant is for another container");
  }
  if (content.expires_unix_s() <= static_cast<uint64_t>(absl::ToUnixSeconds(now))) {
    return Denied("the grant has expired");
  }
  std::vector<ExpertSlice> granted;
  granted.reserve(static_cast<size_t>(content.slices_size()));
  for (const v1::ExpertSlice& one : content.slices()) {
    SHOAL_ASSIGN_OR_RETURN(granted.emplace_back(), FromMessage(one, "grant"));
  }
  return Uncovered(slice, granted).empty() ? absl::OkStatus()
                                           : Denied("the grant has other slices");
}

}  // namespace shoal

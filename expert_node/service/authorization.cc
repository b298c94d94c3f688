#include "expert_node/service/authorization.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

struct Rule {
  absl::string_view prefix;  // of the method; the first rule that fits holds
  bool coordinator;
  bool node;
  bool client;
  bool api_key;
  absl::string_view who;  // for messages
};

constexpr std::array<Rule, 11> kRules = {{
    {"/shoal.v1.ExpertNode/Describe", true, true, false, false, "coordinators and nodes"},
    {"/shoal.v1.ExpertNode/Execute", true, false, false, false, "coordinators"},
    {"/shoal.v1.ExpertNode/FetchUnits", true, true, false, false, "coordinators and nodes"},
    {"/shoal.v1.ExpertNode/FetchModel", true, true, false, false, "coordinators and nodes"},
    {"/shoal.v1.ExpertNode/Fill", true, false, false, false, "coordinators"},
    {"/shoal.v1.Drill/", true, false, false, false, "coordinators"},
    {"/shoal.v1.Membership/", true, false, false, false, "coordinators"},
    {"/shoal.v1.Cluster/", true, false, false, false, "coordinators"},
    {"/shoal.v1.Inference/", true, false, true, true, "coordinators, clients and API keys"},
    {"/grpc.health.v1.Health/", true, true, true, true, "members of the pool and API keys"},
    {"/grpc.", true, true, true, false, "members of the pool"},  // reflection, channelz
}};

bool Allows(const Rule& rule, CallerKind caller) {
  switch (caller) {
    case CallerKind::kCoordinator:
      return rule.coordinator;
    case CallerKind::kNode:
      return rule.node;
    case CallerKind::kClient:
      return rule.client;
    case CallerKind::kApiKey:
      return rule.api_key;
    case CallerKind::kStranger:
      return false;
  }
  return false;
}

bool Fits(absl::string_view method, absl::string_view prefix) {
  return absl::EndsWith(prefix, "/") || absl::EndsWith(prefix, ".")
             ? absl::StartsWith(method, prefix)
             : method == prefix;
}

}  // namespace

std::string Caller::Who() const {
  switch (kind) {
    case CallerKind::kCoordinator:
      return absl::StrCat("coordinator ", name);
    case CallerKind::kNode:
      return absl::StrCat("node ", name);
    case CallerKind::kClient:
      return absl::StrCat("client ", name);
    case CallerKind::kApiKey:
      return absl::StrCat("API key ", name);
    case CallerKind::kStranger:
      return "a caller without certificate or API key";
  }
  return name;
}

absl::Status CheckMayCall(absl::string_view method, CallerKind caller) {
  for (const Rule& rule : kRules) {
    if (Fits(method, rule.prefix)) {
      return Allows(rule, caller) ? absl::OkStatus()
                                  : absl::PermissionDeniedError(
                                        absl::StrCat(method, " is for ", rule.who, " alone"));
    }
  }
  return absl::PermissionDeniedError(absl::StrCat(method, " is no method that anybody may call"));
}

}  // namespace shoal

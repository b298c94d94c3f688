#include "coordinator/pool/pool_plan.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr char kFormatName[] = "shoal-pool-plan";
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMaxPlanBytes = uint64_t{16} << 20;
// Both bound the time that a hostile file takes: slices are compared with each other.
constexpr size_t kMaxNodes = 256;
constexpr size_t kMaxPlanSlices = 2048;

bool IsAddress(absl::string_view text) {
  const absl::StatusOr<NetAddress> address = ParseNetAddress(text);
  return text == kOwnAddress || (address.ok() && address->port != 0);
}

absl::Status CheckNodes(const PoolPlan& plan, absl::string_view what) {
  std::set<std::string> names;
  std::set<std::string> addresses;
  size_t num_slices = 0;
  for (const PoolNode& node : plan.nodes) {
    SHOAL_RETURN_IF_ERROR(CheckNodeName(node.name, absl::StrCat(what, ": nodes: name")));
    const std::string where = absl::StrCat(what, ": node ", node.name);
    if (!names.insert(node.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": two nodes have this name; give each its own"));
    }
    if (!node.address.empty() && !IsAddress(node.address)) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": address ", Brief(Json(node.address)),
                       " is not host:port, like 192.168.1.20:7431 or [fe80::1]:7431"));
    }
    if (!node.address.empty() && !addresses.insert(node.address).second) {
      return absl::InvalidArgumentError(absl::StrCat(where, ": address ", node.address,
                                                     " is another node's too; each listens on its "
                                                     "own"));
    }
    if (node.slices.empty() && node.copies.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": it has neither slices nor copies; leave it out of the plan"));
    }
    if (node.is_coordinator() && !node.copies.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": it is the coordinator, which holds everything; leave its copies out"));
    }
    num_slices += node.slices.size() + node.copies.size();
  }
  if (plan.nodes.empty() || plan.nodes.size() > kMaxNodes || num_slices > kMaxPlanSlices) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", plan.nodes.size(), " nodes with ", num_slices, " slices; 1 to ",
                     kMaxNodes, " nodes with at most ", kMaxPlanSlices, " slices are accepted"));
  }
  if (plan.epoch == 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": epoch is 0; the first plan has 1"));
  }
  return absl::OkStatus();
}

// Each unit of each expert is computed by exactly one node.
absl::Status CheckCover(const PoolPlan& plan, const ExpertSlice& whole) {
  std::vector<ExpertSlice> all;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (const ExpertSlice& a : plan.nodes[i].slices) {
        for (const ExpertSlice& b : plan.nodes[j].slices) {
          if (const ExpertSlice common = Intersect(a, b); !common.empty()) {
            return absl::InvalidArgumentError(absl::StrCat(
                "plan: nodes ", plan.nodes[j].name, " and ", plan.nodes[i].name, " both compute ",
                FormatSlice(common), "; one of them may have it among its copies"));
          }
        }
      }
    }
    all.insert(all.end(), plan.nodes[i].slices.begin(), plan.nodes[i].slices.end());
  }
  if (const auto missing = Uncovered(whole, all); !missing.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("plan: ", FormatSlice(missing.front()),
                                                   " are computed by no node; give them to one"));
  }
  return absl::OkStatus();
}

PoolNode ReadNode(const Json& json, JsonFields& fields) {
  JsonFields node(json, absl::StrCat(fields.source(), ": nodes"));
  node.AllowOnly({"name", "address", "slices", "copies"});
  PoolNode result;
  result.name = node.String("name");
  result.address = node.String("address", "");
  result.slices = ReadSlices(node, "slices");
  if (node.Find("copies") != nullptr) {
    result.copies = ReadSlices(node, "copies");
  }
  fields.Take(node.status());
  return result;
}

}  // namespace

std::vector<ExpertSlice> PoolNode::stored() const {
  std::vector<ExpertSlice> all = slices;
  all.insert(all.end(), copies.begin(), copies.end());
  return all;
}

const PoolNode* PoolPlan::coordinator() const {
  const auto it = std::find_if(nodes.begin(), nodes.end(),
                               [](const PoolNode& node) { return node.is_coordinator(); });
  return it == nodes.end() ? nullptr : &*it;
}

std::vector<PoolNode> PoolPlan::remote() const {
  std::vector<PoolNode> others;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(others),
               [](const PoolNode& node) { return !node.is_coordinator(); });
  return others;
}

std::string SerializePlan(const PoolPlan& plan) {
  Json json;
  json["format"] = kFormatName;
  json["version"] = kPoolPlanVersion;
  json["identity"] = plan.identity;
  json["epoch"] = plan.epoch;
  json["nodes"] = Json::array();
  for (const PoolNode& node : plan.nodes) {
    json["nodes"].push_back({{"name", node.name},
                             {"address", node.address},
                             {"slices", SlicesToJson(node.slices)},
                             {"copies", SlicesToJson(node.copies)}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<PoolPlan> ParsePlan(absl::string_view text, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, name));
  JsonFields fields(json, std::string(name));
  fields.CheckFormat(kFormatName, kPoolPlanVersion);
  fields.AllowOnly({"format", "version", "identity", "epoch", "nodes"});
  SHOAL_RETURN_IF_ERROR(fields.status());
  PoolPlan plan;
  plan.identity = fields.Digest("identity");
  plan.epoch = static_cast<uint64_t>(fields.Int("epoch", 1, kMaxInt));
  const Json& nodes = fields.Array("nodes");
  for (size_t i = 0; i < nodes.size() && i <= kMaxNodes; ++i) {
    plan.nodes.push_back(ReadNode(nodes[i], fields));
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  SHOAL_RETURN_IF_ERROR(CheckNodes(plan, name));
  return plan;
}

absl::StatusOr<PoolPlan> ReadPlan(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxPlanBytes));
  return ParsePlan(text, path);
}

absl::Status WritePlan(const PoolPlan& plan, const std::string& path) {
  return WriteFileAtomically(path, SerializePlan(plan));
}

absl::StatusOr<uint64_t> NextEpoch(const PoolPlan& plan) {
  if (plan.epoch >= static_cast<uint64_t>(kMaxInt)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the plan has the epoch ", plan.epoch,
                     ", and there is no larger one: write the epoch that its pool really has into "
                     "the plan's file"));
  }
  return plan.epoch + 1;
}

absl::Status CheckPlan(const PoolPlan& plan, const Manifest& manifest) {
  if (plan.identity != manifest.identity) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the plan is one for the container with identity ", plan.identity.substr(0, 16),
        "... and this container's is ", manifest.identity.substr(0, 16),
        "...; use that container, or make a plan for this one with `shoal plan --out`"));
  }
  const ExpertSlice whole = manifest.whole_experts();
  if (whole.empty()) {
    return absl::FailedPreconditionError("the model has no experts, so nothing can be shared out");
  }
  SHOAL_RETURN_IF_ERROR(CheckNodes(plan, "plan"));
  for (const PoolNode& node : plan.nodes) {
    SHOAL_RETURN_IF_ERROR(
        CheckSlices(whole, node.stored(), absl::StrCat("plan: node ", node.name)));
  }
  return CheckCover(plan, whole);
}

}  // namespace shoal

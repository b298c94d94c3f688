#include "coordinator/pool/pool_spec.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/net/address.h"
#include "common/status/status_macros.h"
#include "coordinator/pool/placement.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {
namespace {

constexpr char kFormatName[] = "shoal-pool-spec";
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMaxSpecBytes = uint64_t{1} << 20;
// No machine of these years is near them.
constexpr double kMaxRate = 1e15;
constexpr double kMaxRoundTripMs = 60'000;

NodeRates ReadNode(const Json& json, JsonFields& fields) {
  JsonFields node(json, absl::StrCat(fields.source(), ": nodes"));
  node.AllowOnly({"name", "address", "read_bytes_per_second", "compute_bytes_per_second",
                  "link_bytes_per_second", "round_trip_ms", "free_disk_bytes", "cache_bytes"});
  NodeRates result;
  result.name = node.String("name");
  node.Take(CheckNodeName(result.name, absl::StrCat(node.source(), ": name")));
  // From here on messages say which node it is.
  JsonFields named(json, absl::StrCat(fields.source(), ": node ", result.name));
  named.Take(node.status());
  result.address = named.String("address", "");
  if (!result.address.empty() && result.address != kOwnAddress) {
    const auto address = ParseNetAddress(result.address);
    if (address.ok()) {
      result.address = address->ToString();
    } else {
      named.Fail("address", address.status().message());
    }
  }
  // Less than a byte a second is a mistake in the unit.
  result.read_bytes_per_second = named.Number("read_bytes_per_second", 1, kMaxRate);
  result.compute_bytes_per_second = named.Number("compute_bytes_per_second", 1, kMaxRate);
  result.link_bytes_per_second = named.Number("link_bytes_per_second", 1, kMaxRate);
  result.round_trip = absl::Milliseconds(named.Number("round_trip_ms", 0, kMaxRoundTripMs));
  result.free_disk_bytes = static_cast<uint64_t>(named.Int("free_disk_bytes", 0, kMaxInt));
  result.cache_bytes = static_cast<uint64_t>(named.Int("cache_bytes", 0, kMaxInt, 0));
  fields.Take(named.status());
  return result;
}

}  // namespace

absl::StatusOr<std::vector<NodeRates>> ParsePoolSpec(absl::string_view text,
                                                     absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, name));
  JsonFields fields(json, std::string(name));
  fields.CheckFormat(kFormatName, kPoolSpecVersion);
  fields.AllowOnly({"format", "version", "nodes"});
  SHOAL_RETURN_IF_ERROR(fields.status());
  std::vector<NodeRates> nodes;
  const Json& array = fields.Array("nodes");
  if (array.empty() || array.size() > kMaxPlannedNodes) {
    fields.Fail("nodes", absl::StrCat("has ", array.size(), " entries; 1 to ", kMaxPlannedNodes,
                                      " are accepted"));
  }
  for (size_t i = 0; fields.status().ok() && i < array.size(); ++i) {
    nodes.push_back(ReadNode(array[i], fields));
  }
  SHOAL_RETURN_IF_ERROR(fields.status());
  return nodes;
}

absl::StatusOr<std::vector<NodeRates>> ReadPoolSpec(const std::string& path) {
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxSpecBytes));
  return ParsePoolSpec(text, path);
}

}  // namespace shoal

#include "coordinator/cli/cluster_report.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"

namespace shoal {
namespace {

// What a node did between two looks.
struct NodeDelta {
  int64_t requests = 0;
  NodeWork work;
  double read_bytes_per_second = 0;

  double HitRate() const {
    const int64_t used = work.expert_hits + work.expert_misses;
    return used > 0 ? static_cast<double>(work.expert_hits) / static_cast<double>(used) : 0;
  }
  // Of a layer's round trip.
  double Share(absl::Duration time) const {
    return work.round_trip > absl::ZeroDuration()
               ? std::clamp(absl::FDivDuration(time, work.round_trip), 0.0, 1.0)
               : 0;
  }
  double KernelShare() const { return Share(work.execute - work.disk_wait); }
  double DiskShare() const { return Share(work.disk_wait); }
  double QueueShare() const { return Share(work.queue); }
  double NetworkShare() const { return Share(work.round_trip - work.execute - work.queue); }
};

// The node as the first look saw it; null where the coordinator has begun to count anew since.
const PoolNodeStatus* Before(const ClusterLook& look, const PoolNodeStatus& node) {
  if (look.before.epoch != look.now.epoch || look.before.uptime > look.now.uptime) {
    return nullptr;
  }
  const auto it =
      std::find_if(look.before.nodes.begin(), look.before.nodes.end(), [&node](const auto& other) {
        return other.name == node.name && other.address == node.address;
      });
  return it == look.before.nodes.end() || it->requests > node.requests ||
                 it->work.expert_bytes > node.work.expert_bytes
             ? nullptr
             : &*it;
}

NodeDelta DeltaOf(const ClusterLook& look, const PoolNodeStatus& now) {
  const PoolNodeStatus* before = Before(look, now);
  NodeDelta delta{now.requests, now.work};
  if (before == nullptr || now.requests == before->requests) {
    return delta;
  }
  delta.requests -= before->requests;
  delta.work.round_trip -= before->work.round_trip;
  delta.work.execute -= before->work.execute;
  delta.work.disk_wait -= before->work.disk_wait;
  delta.work.queue -= before->work.queue;
  delta.work.expert_hits -= before->work.expert_hits;
  delta.work.expert_misses -= before->work.expert_misses;
  delta.work.expert_bytes -= before->work.expert_bytes;
  if (const double seconds = absl::ToDoubleSeconds(look.interval); seconds > 0) {
    delta.read_bytes_per_second = static_cast<double>(delta.work.expert_bytes) / seconds;
  }
  return delta;
}

std::string Rate(double bytes_per_second) {
  return bytes_per_second > 0
             ? absl::StrCat(FormatByteSize(static_cast<uint64_t>(bytes_per_second)), "/s")
             : "-";
}

std::string Percent(double share) { return absl::StrFormat("%.0f %%", share * 100); }

std::string Latency(absl::Duration time) {
  return time > absl::ZeroDuration() ? absl::StrFormat("%.2f ms", absl::ToDoubleMilliseconds(time))
                                     : "-";
}

const std::vector<ExpertSlice>& ShownSlices(const PoolNodeStatus& node) {
  return node.computes.empty() ? node.slices : node.computes;
}

// From the first to the last that any node has.
ExpertRange AllExperts(std::span<const PoolNodeStatus> nodes) {
  ExpertRange all{std::numeric_limits<int64_t>::max(), 0};
  for (const PoolNodeStatus& node : nodes) {
    for (const ExpertSlice& slice : ShownSlices(node)) {
      all.begin = std::min(all.begin, slice.experts.begin);
      all.end = std::max(all.end, slice.experts.end);
    }
  }
  return all;
}

// Experts are named where a node has not all of them.
std::string Units(const PoolNodeStatus& node, const ExpertRange& all_experts) {
  const std::vector<ExpertSlice>& slices = ShownSlices(node);
  if (slices.empty()) {
    return "-";
  }
  const ExpertSlice& first = slices.front();
  std::string text = absl::StrFormat("%d-%d", first.units.begin, first.units.end - 1);
  if (first.experts != all_experts) {
    absl::StrAppendFormat(&text, " e%d-%d", first.experts.begin, first.experts.end - 1);
  }
  return slices.size() == 1 ? text : absl::StrCat(text, ",+", slices.size() - 1);
}

}  // namespace

std::string FormatCluster(const ClusterLook& look) {
  std::string text = absl::StrFormat(
      "model %s, experts %s, epoch %d, up %s%s\n", look.now.identity.substr(0, 12), look.now.codec,
      look.now.epoch, absl::FormatDuration(absl::Trunc(look.now.uptime, absl::Seconds(1))),
      look.now.stands_in ? ", stands in for nodes" : "");
  if (!look.now.own_slices.empty()) {
    absl::StrAppend(&text, "the coordinator itself computes ",
                    absl::StrJoin(look.now.own_slices, ", ",
                                  [](std::string* out, const ExpertSlice& slice) {
                                    out->append(FormatSlice(slice));
                                  }),
                    "\n");
  }
  size_t width = 4;
  for (const PoolNodeStatus& node : look.now.nodes) {
    width = std::max(width, node.name.size());
  }
  constexpr char kRow[] =
      "%-*s  %-11s %-9s %12s %12s %6s %7s %6s %6s %8s %10s %10s %9s %7s %9s %7s\n";
  absl::StrAppendFormat(&text, kRow, width, "node", "state", "units", "disk", "reading", "hits",
                        "kernel", "disk", "queue", "network", "p50", "p95", "requests", "hedges",
                        "failures", "losses");
  const ExpertRange all_experts = AllExperts(look.now.nodes);
  for (const PoolNodeStatus& node : look.now.nodes) {
    const NodeDelta delta = DeltaOf(look, node);
    absl::StrAppendFormat(
        &text, kRow, width, node.name, NodeStateName(node.state), Units(node, all_experts),
        Rate(static_cast<double>(node.read_bytes_per_second)), Rate(delta.read_bytes_per_second),
        Percent(delta.HitRate()), Percent(delta.KernelShare()), Percent(delta.DiskShare()),
        Percent(delta.QueueShare()), Percent(delta.NetworkShare()), Latency(node.layer_p50),
        Latency(node.layer_p95), absl::StrCat(node.requests), absl::StrCat(node.hedges),
        absl::StrCat(node.failures), absl::StrCat(node.losses));
    if (!node.evidence.empty()) {
      absl::StrAppend(&text, "  ", absl::Utf8SafeCHexEscape(node.evidence), "\n");
    }
    if (node.state == NodeState::kLost && !node.last_error.empty()) {
      // The node's own words.
      absl::StrAppend(&text, "  ", absl::Utf8SafeCHexEscape(node.last_error), "\n");
    }
  }
  return text;
}

Json ClusterJson(const ClusterLook& look) {
  Json json;
  json["identity"] = look.now.identity;
  json["codec"] = look.now.codec;
  json["epoch"] = look.now.epoch;
  json["stands_in"] = look.now.stands_in;
  json["own_slices"] = Json(SlicesToJson(look.now.own_slices));
  json["uptime_ms"] = absl::ToInt64Milliseconds(look.now.uptime);
  json["interval_ms"] = absl::ToDoubleMilliseconds(look.interval);
  json["nodes"] = Json::array();
  for (const PoolNodeStatus& node : look.now.nodes) {
    const NodeDelta delta = DeltaOf(look, node);
    json["nodes"].push_back({{"name", node.name},
                             {"address", node.address},
                             {"state", std::string(NodeStateName(node.state))},
                             {"last_error", node.last_error},
                             {"computes", Json(SlicesToJson(node.computes))},
                             {"stored", Json(SlicesToJson(node.slices))},
                             {"disk_bytes_per_second", node.read_bytes_per_second},
                             {"reading_bytes_per_second", delta.read_bytes_per_second},
                             {"hit_rate", delta.HitRate()},
                             {"kernel_share", delta.KernelShare()},
                             {"disk_share", delta.DiskShare()},
                             {"queue_share", delta.QueueShare()},
                             {"network_share", delta.NetworkShare()},
                             {"layer_p50_ms", absl::ToDoubleMilliseconds(node.layer_p50)},
                             {"layer_p95_ms", absl::ToDoubleMilliseconds(node.layer_p95)},
                             {"requests", node.requests},
                             {"hedges", node.hedges},
                             {"failures", node.failures},
                             {"losses", node.losses},
                             {"audits", node.audits},
                             {"evidence", node.evidence},
                             {"expert_bytes", node.work.expert_bytes}});
  }
  return json;
}

}  // namespace shoal

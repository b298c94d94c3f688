#include "coordinator/cli/placement_report.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "expert_node/node_probe.h"

namespace shoal {
namespace {

absl::string_view LimitName(const NodeTimes& times) {
  if (times.network >= std::max(times.read, times.compute)) {
    return "link";
  }
  return times.read >= times.compute ? "disk" : "kernel";
}

std::string RateText(double bytes_per_second) {
  return absl::StrCat(FormatByteSize(static_cast<uint64_t>(bytes_per_second)), "/s");
}

double Milliseconds(double seconds) { return seconds * 1e3; }

std::vector<std::string> NamesOf(const PoolProposal& proposal, const std::vector<size_t>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const size_t node : nodes) {
    names.push_back(proposal.plan.nodes[node].name);
  }
  return names;
}

std::string AfterDeath(const PoolProposal& proposal, size_t i) {
  const PlacedNode& node = proposal.nodes[i];
  if (proposal.plan.nodes[i].is_coordinator()) {
    return "the pool ends";
  }
  if (!node.stand_ins) {
    return "waits";
  }
  std::string text = absl::StrFormat("%.2f tokens/s", node.tokens_per_second_after_death);
  if (!node.stand_ins->empty()) {
    absl::StrAppend(&text, " on ", absl::StrJoin(NamesOf(proposal, *node.stand_ins), ", "));
  }
  return text;
}

// The units or experts that a node computes, [begin, end) each.
std::vector<ItemRange> RangesOf(const PlacementReport& report, const PoolProposal& proposal,
                                size_t i) {
  const PlacementAxis axis(report.manifest, proposal.placement);
  std::vector<ItemRange> ranges;
  ranges.reserve(proposal.plan.nodes[i].slices.size());
  for (const ExpertSlice& slice : proposal.plan.nodes[i].slices) {
    ranges.push_back(*axis.RangeOf(slice));
  }
  return ranges;
}

std::string RangesText(const std::vector<ItemRange>& ranges) {
  return ranges.empty() ? "-"
                        : absl::StrJoin(ranges, ",", [](std::string* text, const ItemRange& range) {
                            absl::StrAppend(text, range.begin, "-", range.end - 1);
                          });
}

std::string Joined(const std::vector<std::string>& names) { return absl::StrJoin(names, ", "); }

std::string MoveText(const Move& move) {
  return absl::StrFormat("%s, %.1f %% of all expert bytes", FormatByteSize(move.bytes),
                         move.fraction * 100);
}

// How the new plan goes on from the old one.
std::string ReplanText(const Replan& replan) {
  std::string text =
      absl::StrCat("Epoch ", replan.proposal.plan.epoch, " of the plan that is kept");
  if (!replan.added.empty()) {
    absl::StrAppend(&text, "; new: ", Joined(replan.added));
  }
  if (!replan.gone.empty()) {
    absl::StrAppend(&text, "; gone: ", Joined(replan.gone));
  }
  absl::StrAppend(
      &text, ". To be fetched: ", replan.move.bytes > 0 ? MoveText(replan.move) : "nothing", ".\n");
  if (!replan.anew) {
    return text;
  }
  // Less is not worth the hours that a copy takes, and rates are measured no better.
  constexpr double kNotable = 1.05;
  const double gain = replan.anew->tokens_per_second / replan.proposal.tokens_per_second;
  if (gain >= kNotable) {
    absl::StrAppendFormat(
        &text, "Placed anew it would be %.0f %% faster (%.2f tokens/s), and %s would be fetched.\n",
        (gain - 1) * 100, replan.anew->tokens_per_second, MoveText(replan.anew->move));
  }
  return text;
}

Json MoveJson(const Move& move) {
  return {{"moved_bytes", move.bytes}, {"moved_fraction", move.fraction}};
}

Json ReplanJson(const Replan& replan) {
  Json json = MoveJson(replan.move);
  json["epoch"] = replan.proposal.plan.epoch;
  json["added"] = replan.added;
  json["gone"] = replan.gone;
  json["stored_once"] = Json(SlicesToJson(replan.stored_once));
  json["anew"] = nullptr;
  if (replan.anew) {
    json["anew"] = MoveJson(replan.anew->move);
    json["anew"]["tokens_per_second"] = replan.anew->tokens_per_second;
  }
  return json;
}

std::string Headline(const PlacementReport& report) {
  const PoolProposals& both = report.proposals;
  std::string text = absl::StrFormat("%d nodes, placed by %s, %s: %.2f tokens/s predicted",
                                     both.best.nodes.size(), PlacementName(both.best.placement),
                                     report.options.copies > 1 ? "2 copies" : "1 copy",
                                     both.best.tokens_per_second);
  if (report.options.copies > 1) {
    absl::StrAppendFormat(&text, ", %.2f after the worst single death",
                          both.best.tokens_per_second_after_worst_death);
  }
  text += "\n";
  if (both.other) {
    absl::StrAppendFormat(&text, "By %s it would be %.2f tokens/s.\n",
                          PlacementName(both.other->placement), both.other->tokens_per_second);
  } else if (!both.why_no_other.ok()) {
    absl::StrAppend(&text, "The other placement is not possible: ", both.why_no_other.message(),
                    "\n");
  }
  return report.replan == nullptr ? text : text + ReplanText(*report.replan);
}

std::string Table(const PlacementReport& report) {
  const PoolProposal& proposal = report.proposals.best;
  size_t width = 4;
  size_t ranges_width = 11;
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    width = std::max(width, proposal.plan.nodes[i].name.size());
    ranges_width = std::max(ranges_width, RangesText(RangesOf(report, proposal, i)).size());
  }
  std::string text = absl::StrFormat("%-*s  %-*s %7s %10s %11s  %-6s  %s\n", width, "node",
                                     ranges_width, PlacementName(proposal.placement), "share",
                                     "stored", "a layer", "limit", "after its death");
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    const PlacedNode& node = proposal.nodes[i];
    absl::StrAppendFormat(&text, "%-*s  %-*s %5.1f %% %10s %8.3f ms  %-6s  %s\n", width,
                          proposal.plan.nodes[i].name, ranges_width,
                          RangesText(RangesOf(report, proposal, i)), node.share * 100,
                          FormatByteSize(node.stored_bytes), Milliseconds(node.times.total()),
                          LimitName(node.times), AfterDeath(proposal, i));
  }
  return text;
}

// In the words of a sentence each.
std::vector<std::string> Warnings(const PlacementReport& report) {
  const PoolProposal& proposal = report.proposals.best;
  std::vector<std::string> warnings;
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    if (proposal.nodes[i].slows_the_pool) {
      warnings.push_back(absl::StrFormat("node %s makes the pool slower: %.2f tokens/s without it",
                                         proposal.plan.nodes[i].name,
                                         proposal.nodes[i].tokens_per_second_without));
    }
  }
  for (const size_t node : proposal.left_out) {
    warnings.push_back(absl::StrCat("node ", report.nodes[node].name,
                                    " is left out: its share is less than one of the ",
                                    PlacementName(proposal.placement)));
  }
  for (const NodeRates& node : report.nodes) {
    if (node.compute_assumed) {
      warnings.push_back(absl::StrCat("node ", node.name,
                                      " is empty: its disk was measured with reads of ",
                                      kScratchReadBytes >> 20,
                                      " MiB of a scratch file, and reads of records may be slower; "
                                      "its kernels were not measured: ",
                                      RateText(node.compute_bytes_per_second),
                                      " is assumed, as of the slowest of the others, or else of "
                                      "its disk. Plan again when it is ",
                                      "filled"));
    }
  }
  const bool no_link = std::any_of(report.nodes.begin(), report.nodes.end(), [](const auto& node) {
    return node.link_bytes_per_second == 0 && node.address != kOwnAddress;
  });
  if (no_link) {
    warnings.push_back("the rate of links is not known and not counted, only round trips");
  }
  if (report.replan != nullptr && !report.replan->stored_once.empty()) {
    warnings.push_back(
        absl::StrCat(FormatSlice(report.replan->stored_once.front()),
                     report.replan->stored_once.size() > 1 ? " and others" : "",
                     " have lost their second copy: add a machine with --copies 2, which then "
                     "stores one"));
  } else if (report.options.copies == 1) {
    warnings.push_back(
        "one copy: where a node dies an answer waits for it, unless `run` may read its part from "
        "DIR; --copies 2 keeps a second copy");
  }
  return warnings;
}

std::string ExplainNodes(const PlacementReport& report) {
  const PoolProposal& proposal = report.proposals.best;
  std::string text;
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    const PlacedNode& placed = proposal.nodes[i];
    const NodeRates& rates = report.nodes[placed.node];
    absl::StrAppendFormat(
        &text, "  %s: reads %s, kernels %s, round trip %.3f ms, link %s\n    %.3f ms reading, ",
        rates.name, RateText(rates.read_bytes_per_second), RateText(rates.compute_bytes_per_second),
        absl::ToDoubleMilliseconds(rates.round_trip),
        rates.link_bytes_per_second > 0 ? RateText(rates.link_bytes_per_second) : "unknown",
        Milliseconds(placed.times.read));
    absl::StrAppendFormat(&text, "%.3f ms computing, %.3f ms on the way\n",
                          Milliseconds(placed.times.compute), Milliseconds(placed.times.network));
  }
  return text;
}

Json NodeJson(const PlacementReport& report, const PoolProposal& proposal, size_t i) {
  const PlacedNode& node = proposal.nodes[i];
  const NodeRates& rates = report.nodes[node.node];
  Json json;
  json["name"] = rates.name;
  json["address"] = rates.address;
  const std::vector<ItemRange> ranges = RangesOf(report, proposal, i);
  json[std::string(PlacementName(proposal.placement))] =
      ranges.size() == 1 ? Json{ranges.front().begin, ranges.front().end} : Json(nullptr);
  json["slices"] = Json(SlicesToJson(proposal.plan.nodes[i].slices));
  json["copies"] = Json(SlicesToJson(proposal.plan.nodes[i].copies));
  json["share"] = node.share;
  json["stored_bytes"] = node.stored_bytes;
  json["free_disk_bytes"] = rates.free_disk_bytes;
  json["read_bytes_per_second"] = rates.read_bytes_per_second;
  json["compute_bytes_per_second"] = rates.compute_bytes_per_second;
  json["compute_assumed"] = rates.compute_assumed;
  json["link_bytes_per_second"] =
      rates.link_bytes_per_second > 0 ? Json(rates.link_bytes_per_second) : Json(nullptr);
  json["round_trip_ms"] = absl::ToDoubleMilliseconds(rates.round_trip);
  json["cache_bytes"] = rates.cache_bytes;
  json["layer_seconds"] = node.times.total();
  json["read_seconds"] = node.times.read;
  json["compute_seconds"] = node.times.compute;
  json["network_seconds"] = node.times.network;
  json["limit"] = std::string(LimitName(node.times));
  json["stand_ins"] = node.stand_ins ? Json(NamesOf(proposal, *node.stand_ins)) : Json(nullptr);
  json["tokens_per_second_after_death"] = node.tokens_per_second_after_death;
  json["tokens_per_second_without"] = node.tokens_per_second_without;
  json["slows_the_pool"] = node.slows_the_pool;
  return json;
}

Json ProposalJson(const PlacementReport& report, const PoolProposal& proposal) {
  Json json;
  json["placement"] = std::string(PlacementName(proposal.placement));
  json["layer_seconds"] = proposal.layer_seconds;
  json["tokens_per_second"] = proposal.tokens_per_second;
  json["tokens_per_second_after_worst_death"] = proposal.tokens_per_second_after_worst_death;
  json["nodes"] = Json::array();
  for (size_t i = 0; i < proposal.nodes.size(); ++i) {
    json["nodes"].push_back(NodeJson(report, proposal, i));
  }
  json["left_out"] = Json::array();
  for (const size_t node : proposal.left_out) {
    json["left_out"].push_back(report.nodes[node].name);
  }
  return json;
}

}  // namespace

std::string FormatPlacement(const PlacementReport& report) {
  std::string text = absl::StrCat(Headline(report), "\n", Table(report));
  absl::string_view before = "\n";
  for (const std::string& warning : Warnings(report)) {
    absl::StrAppend(&text, before, "- ", warning, "\n");
    before = "";
  }
  return text;
}

std::string ExplainPlacement(const PlacementReport& report) {
  const Manifest& manifest = report.manifest;
  const auto& moe = manifest.config.moe;
  const ForecastOptions& options = report.options.forecast;
  std::string text = absl::StrFormat(
      "\nA token chooses %d of %d experts in each of %d layers. An expert has %d units, %s. "
      "Request\n"
      "and reply of a node have %d bytes together, a layer.\n",
      moe.num_experts_per_token, moe.num_experts, manifest.banks.size(),
      manifest.unit_layout.num_units, FormatByteSize(manifest.unit_layout.record_bytes),
      PoolForecast(manifest, options).MessageBytes());
  absl::StrAppend(
      &text,
      "Time of a node = the larger of bytes / disk rate and bytes / kernel rate, and "
      "bytes / link\nrate, and a round trip. A layer takes as long as its slowest node");
  absl::StrAppend(
      &text,
      report.proposals.best.placement == Placement::kUnits
          ? ":\n"
          : ", and by whole experts\nthat is the one with most of the chosen experts (the "
            "mean over all draws; the lines have each node's own mean):\n",
      ExplainNodes(report));
  absl::StrAppendFormat(
      &text,
      "Shares are whole %s in proportion to what each node reads and computes, by the largest\n"
      "remainder. Counted are %.3g of records found in memory (--hit-rate) and %.3g ms of trunk a\n"
      "token (--trunk-ms); not counted are prefetching, and the coordinator's own link where all\n"
      "replies meet.\n",
      PlacementName(report.proposals.best.placement), options.hit_rate,
      absl::ToDoubleMilliseconds(options.trunk_time));
  if (report.replan != nullptr) {
    text +=
        "Nodes of the plan that is kept compute what they store and fetch nothing. Those with more "
        "than\ntheir share give to who stores it too, and the rest of it to new nodes, from an end "
        "of a\nrange; they go on storing it, as a copy.\n";
  } else if (report.options.copies > 1) {
    text +=
        "Each node stores the range after its own too and computes both when that node dies. The\n"
        "order is the one that is fastest after the worst death.\n";
  }
  return text;
}

Json PlacementJson(const PlacementReport& report) {
  Json json;
  json["identity"] = report.manifest.identity;
  json["copies"] = report.options.copies;
  json["hit_rate"] = report.options.forecast.hit_rate;
  json["trunk_ms"] = absl::ToDoubleMilliseconds(report.options.forecast.trunk_time);
  json["message_bytes"] = PoolForecast(report.manifest, report.options.forecast).MessageBytes();
  json["best"] = ProposalJson(report, report.proposals.best);
  json["other"] =
      report.proposals.other ? ProposalJson(report, *report.proposals.other) : Json(nullptr);
  json["replan"] = report.replan == nullptr ? Json(nullptr) : ReplanJson(*report.replan);
  json["why_no_other"] = std::string(report.proposals.why_no_other.message());
  json["warnings"] = Warnings(report);
  return json;
}

}  // namespace shoal

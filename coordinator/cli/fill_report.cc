#include "coordinator/cli/fill_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/container/slice_json.h"
#include "common/io/byte_size.h"
#include "common/sync/clock.h"
#include "coordinator/cli/progress.h"

namespace shoal {

absl::Status FillWithProgress(const LentModel& model, std::span<FillingNode> nodes, int at_once,
                              const std::stop_token& stop, Console& console) {
  ProgressLine line(Clock::Real(), console.error_is_terminal(),
                    [&console](absl::string_view text) { console.NoteRaw(text); });
  return FillNodes(
      model, nodes, at_once,
      [&line](const PartitionProgress& progress) {
        line.Update({.step = progress.step,
                     .bytes_done = progress.bytes_done,
                     .bytes_total = progress.bytes_total,
                     .bytes_skipped = progress.bytes_kept});
      },
      stop);
}

std::string FormatFilled(std::span<const FillingNode> nodes) {
  std::string text;
  for (const FillingNode& node : nodes) {
    if (!node.asked_for) {
      continue;
    }
    absl::StrAppend(&text, node.name, " at ", node.address, ": ");
    if (!node.is_empty) {
      text += "filled already\n";
      continue;
    }
    absl::StrAppendFormat(&text, "%s in %.1f s", FormatByteSize(node.progress.bytes_total),
                          absl::ToDoubleSeconds(node.time));
    if (node.progress.bytes_kept > 0) {
      absl::StrAppend(&text, ", ", FormatByteSize(node.progress.bytes_kept),
                      " of it kept from before");
    }
    text += "\n";
  }
  return text;
}

Json FilledJson(std::span<const FillingNode> nodes) {
  Json json = Json::array();
  for (const FillingNode& node : nodes) {
    if (!node.asked_for) {
      continue;
    }
    json.push_back({{"name", node.name},
                    {"address", node.address},
                    {"already_filled", !node.is_empty},
                    {"bank_bytes", node.progress.bytes_total},
                    {"bytes_kept", node.progress.bytes_kept},
                    {"seconds", absl::ToDoubleSeconds(node.time)},
                    {"sources", node.sources},
                    {"slices", Json(SlicesToJson(node.wanted))}});
  }
  return json;
}

}  // namespace shoal
